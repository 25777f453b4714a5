/* endpoint.c - "ADDR:PORT" and what the socket calls take */

#include "chan/endpoint.h"

#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

/* Takes "host:port" apart: the host without brackets, "" where there is none. */
static bool split(const char *text, char *host, size_t size, char *port, size_t port_size)
{
	const char *colon = strrchr(text, ':');
	size_t len = colon ? (size_t)(colon - text) : 0;
	bool bracketed = len >= 2 && text[0] == '[' && text[len - 1] == ']';

	if (!colon || len >= size || !colon[1] || strlen(colon + 1) >= port_size ||
		strspn(colon + 1, "0123456789") != strlen(colon + 1) || atoi(colon + 1) > 65535)
		return false;
	if (bracketed) {
		text++;
		len -= 2;
	}
	memcpy(host, text, len);
	host[len] = '\0';
	snprintf(port, port_size, "%s", colon + 1);
	/* An IPv6 address without brackets has a last group that looks like a port. */
	return bracketed ? len > 0 : !strchr(host, ':');
}

/* Those of a family, or all others; AF_UNSPEC is all of them. */
static int take(
	const struct addrinfo *at, int family, bool of_family, struct endpoint *endpoints, int n)
{
	for (; at && n < ENDPOINT_MAX; at = at->ai_next) {
		bool is_of = family == AF_UNSPEC || at->ai_family == family;

		if (is_of != of_family || at->ai_addrlen > sizeof(endpoints[n].address))
			continue;
		memcpy(&endpoints[n].address, at->ai_addr, at->ai_addrlen);
		endpoints[n++].len = at->ai_addrlen;
	}
	return n;
}

int vbn__endpoint_parse(
	const char *text, bool listens, bool lookup, struct endpoint endpoints[ENDPOINT_MAX])
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICSERV | (listens ? AI_PASSIVE : 0) |
			(lookup ? 0 : AI_NUMERICHOST)};
	char host[256], port[8];
	struct addrinfo *found;
	int error, n = 0;

	if (!text || !split(text, host, sizeof(host), port, sizeof(port)))
		return fail(EINVAL,
			"address \"%s\" cannot be used: write ADDR:PORT, [V6]:PORT or :PORT, with a port up to 65535",
			text ? text : "");
	error = getaddrinfo(*host ? host : NULL, port, &hints, &found);
	if (error)
		return fail(lookup ? EHOSTUNREACH : EINVAL, "address \"%s\" cannot be used: %s; %s",
			text, gai_strerror(error),
			lookup ? "see how it is written, whether getent hosts knows it, or write its number"
			       : "names are not looked up here: write its number");
	/* To listen on any address, IPv6's comes first: it takes IPv4 peers too. */
	n = take(found, listens && !*host ? AF_INET6 : AF_UNSPEC, true, endpoints, 0);
	n = take(found, listens && !*host ? AF_INET6 : AF_UNSPEC, false, endpoints, n);
	freeaddrinfo(found);
	return n;
}

char *vbn__endpoint_text(const struct endpoint *endpoint, char text[ENDPOINT_TEXT])
{
	bool v6 = endpoint->address.ss_family == AF_INET6;
	char host[48], port[8];

	if (getnameinfo((const struct sockaddr *)&endpoint->address, endpoint->len, host,
		    sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV))
		snprintf(text, ENDPOINT_TEXT, "?");
	else
		snprintf(text, ENDPOINT_TEXT, v6 ? "[%s]:%s" : "%s:%s", host, port);
	return text;
}

void vbn__endpoint_of_socket(int fd, bool peer, char text[ENDPOINT_TEXT])
{
	struct endpoint endpoint = {.len = sizeof(endpoint.address)};
	struct sockaddr *address = (struct sockaddr *)&endpoint.address;

	text[0] = '\0';
	if (!(peer ? getpeername(fd, address, &endpoint.len)
		   : getsockname(fd, address, &endpoint.len)))
		vbn__endpoint_text(&endpoint, text);
}
