/* json.c - writing JSON into a buffer that has an end */

#include "obs/json.h"
#include "obs/text.h"

#include <stdio.h>

void vbn__json_start(struct json *json, char *text, size_t size)
{
	*json = (struct json){.at = text, .end = text + size};
}

static void put(struct json *json, const char *text, size_t len)
{
	if ((size_t)(json->end - json->at) < len)
		json->full = true;
	if (json->full)
		return;
	memcpy(json->at, text, len);
	json->at += len;
}

/* Before any value or key. */
static void separate(struct json *json)
{
	if (json->comma)
		put(json, ",", 1);
	json->comma = true;
}

void vbn__json_open(struct json *json, char bracket)
{
	separate(json);
	put(json, &bracket, 1);
	json->comma = false;
}

void vbn__json_close(struct json *json, char bracket)
{
	put(json, &bracket, 1);
	json->comma = true;
}

/* Writes what may not stand in a string as itself: how many bytes of `text` that was. */
static size_t put_character(struct json *json, const char *text, size_t len)
{
	size_t n = vbn__utf8(text, len);
	char escaped[8];

	if (*text == '"' || *text == '\\') {
		snprintf(escaped, sizeof(escaped), "\\%c", *text);
	} else if (n && (unsigned char)*text >= ' ' && *text != 0x7f) {
		put(json, text, n);
		return n;
	} else {
		snprintf(escaped, sizeof(escaped), "\\u%04x", (unsigned char)*text);
	}
	put(json, escaped, strlen(escaped));
	return 1;
}

static void put_string(struct json *json, const char *text, size_t len)
{
	put(json, "\"", 1);
	for (size_t i = 0; i < len && !json->full;)
		i += put_character(json, text + i, len - i);
	put(json, "\"", 1);
}

void vbn__json_bytes_key(struct json *json, const char *key, size_t len)
{
	separate(json);
	put_string(json, key, len);
	put(json, ":", 1);
	json->comma = false;
}

void vbn__json_key(struct json *json, const char *key)
{
	vbn__json_bytes_key(json, key, strlen(key));
}

void vbn__json_string(struct json *json, const char *text)
{
	separate(json);
	put_string(json, text, strlen(text));
}

void vbn__json_number(struct json *json, uint64_t number)
{
	char text[24];

	snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
	vbn__json_raw(json, text);
}

void vbn__json_raw(struct json *json, const char *value)
{
	separate(json);
	put(json, value, strlen(value));
}

void vbn__json_pair(struct json *json, const char *key, uint64_t number)
{
	vbn__json_key(json, key);
	vbn__json_number(json, number);
}

void vbn__json_text_pair(struct json *json, const char *key, const char *text)
{
	vbn__json_key(json, key);
	vbn__json_string(json, text);
}
