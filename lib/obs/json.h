/* json.h - writing JSON into a buffer that has an end
 *
 * What does not fit is not written, and `full` says so: the caller goes back to a copy of the writer
 * that it made before, or gives up. Commas come by themselves.
 */
#ifndef VBN_OBS_JSON_H
#define VBN_OBS_JSON_H

#include "base/base.h"

struct json {
	char *at, *end;
	bool comma; /* before what comes next */
	bool full;
};

void vbn__json_start(struct json *json, char *text, size_t size);

/* "{", "[" */
void vbn__json_open(struct json *json, char bracket);
void vbn__json_close(struct json *json, char bracket);

void vbn__json_key(struct json *json, const char *key);
void vbn__json_bytes_key(struct json *json, const char *key, size_t len);

/* Bytes that are no UTF-8 are shown as the character of their number. */
void vbn__json_string(struct json *json, const char *text);
void vbn__json_number(struct json *json, uint64_t number);

/* "null", or a value that is JSON already. */
void vbn__json_raw(struct json *json, const char *value);

/* Its own key and value. */
void vbn__json_pair(struct json *json, const char *key, uint64_t number);
void vbn__json_text_pair(struct json *json, const char *key, const char *text);

#endif
