#include "uverbs.h"
const struct vhca_method vhca_devx_methods[1];
const size_t vhca_n_devx_methods = 0;
