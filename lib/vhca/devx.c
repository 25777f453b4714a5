#include "vhca/devx.h"
struct vhca_tir *vhca_devx_tir(struct vhca_context *c, uint32_t h, struct vhca_object **o) { (void)c;(void)h;(void)o; return NULL; }
struct vhca_tally *vhca_devx_tally(struct vhca_context *c, uint32_t h, uint32_t f, struct vhca_object **o) { (void)c;(void)h;(void)o;(void)f; return NULL; }
void vhca_devx_destroy(struct vhca_devx *d) { (void)d; }
