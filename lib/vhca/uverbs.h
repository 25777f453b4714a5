/* uverbs.h - between uverbs.c, which takes an ioctl apart, and method.c, the native methods */
#ifndef VHCA_UVERBS_H
#define VHCA_UVERBS_H

#include "front.h"

#define VHCA_MAX_ATTRS 32 /* of one call */
#define VHCA_MAX_SPECS 16 /* of one method */

enum attr_kind {
	ATTR_IN,     /* a structure: a pointer, or inlined up to 8 bytes */
	ATTR_OUT,    /* a pointer to what is written */
	ATTR_HANDLE, /* the number of an object */
	ATTR_NEW,    /* the number of a new object is written to it */
};

enum { OPTIONAL, REQUIRED };

struct vhca_attr_spec {
	uint16_t id;
	uint8_t kind;
	uint8_t required;
	uint16_t size; /* at least so many bytes */
};

struct vhca_call {
	struct vhca_request request;
	uint64_t header; /* the program's address */
	struct ib_uverbs_attr attrs[VHCA_MAX_ATTRS];
	unsigned int n;
	const struct vhca_attr_spec *specs;
	int found[VHCA_MAX_SPECS]; /* by spec: which of attrs; -1 is absent */
};

struct vhca_method {
	uint16_t object, method;
	int (*run)(struct vhca_call *call);
	struct vhca_attr_spec specs[VHCA_MAX_SPECS];
	uint8_t n; /* of them */
};

/* What a method's function may ask of its attributes, by their place in the table. */
bool vhca_attr_given(const struct vhca_call *call, unsigned int spec);
struct vhca_span vhca_attr_span(const struct vhca_call *call, unsigned int spec);
/* Of an attribute that chooses among several: which. */
uint8_t vhca_attr_element(const struct vhca_call *call, unsigned int spec);
int vhca_attr_read(const struct vhca_call *call, unsigned int spec, void *to, size_t size);
uint64_t vhca_attr_number(const struct vhca_call *call, unsigned int spec);
uint32_t vhca_attr_handle(const struct vhca_call *call, unsigned int spec);
int vhca_attr_write(const struct vhca_call *call, unsigned int spec, const void *from, size_t size);
int vhca_attr_return(const struct vhca_call *call, unsigned int spec, uint64_t data);

/* method_flow.c's and method_devx.c's. */
extern const struct vhca_method vhca_flow_methods[], vhca_devx_methods[];
extern const size_t vhca_n_flow_methods, vhca_n_devx_methods;

/* NULL: there is no such method. */
const struct vhca_method *vhca_method_find(uint16_t object, uint16_t method);
/* Whether it has an answer only after GET_CONTEXT. */
bool vhca_method_needs_context(const struct vhca_method *method);
/* Which command it carries, after its attributes have been matched; 0 for all other methods. */
uint32_t vhca_call_command(const struct vhca_call *call, const struct vhca_method *method);
/* Whether a device that has failed still does it: what only takes away. */
bool vhca_call_outlives_device(const struct vhca_call *call, const struct vhca_method *method);

#endif
