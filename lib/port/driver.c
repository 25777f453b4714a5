/* driver.c - the table of drivers */

#include "port/port.h"

extern const struct driver vbn__driver_mlx5;

const struct driver *const vbn__drivers[] = {&vbn__driver_mlx5, NULL};
