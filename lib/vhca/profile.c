/* profile.c - what a ConnectX-5 and a ConnectX-4 Lx say of themselves */
#include "vhca/vhca.h"

#include <rdma/mlx5-abi.h>

static const struct vhca_facts profiles[] = {
	[VHCA_CONNECTX5] =
		{
			.name = "connectx5",
			.board_id = "MT_0000000080",
			.device_id = 0x1017,
			.subsystem_id = 0x0008,
			.firmware = {16, 35, 2000},
			.eth_min_inline = MLX5_USER_INLINE_MODE_NONE,
			.enhanced_multi_packet = true,
			.compresses_stride = true,
			.speeds = {10, 25, 40, 50, 100},
			.speed = 100,
		},
	[VHCA_CONNECTX4LX] =
		{
			.name = "connectx4lx",
			.board_id = "MT_2420110034",
			.device_id = 0x1015,
			.subsystem_id = 0x0003,
			.firmware = {14, 32, 1010},
			.eth_min_inline = MLX5_USER_INLINE_MODE_L2,
			.speeds = {10, 25, 40, 50},
			.speed = 25,
		},
};

const struct vhca_facts *vhca_facts(enum vhca_profile profile)
{
	return &profiles[profile];
}

const struct vhca_facts *vhca_facts_named(const char *name, enum vhca_profile *profile)
{
	for (size_t i = 0; i < ARRAY_SIZE(profiles); i++) {
		if (strcmp(name, profiles[i].name))
			continue;
		*profile = (enum vhca_profile)i;
		return &profiles[i];
	}
	return NULL;
}

/* Widths are 1, 2 and 16 for 1X, 4X and 2X; speeds 4 and 32 for QDR (10) and EDR (25). */
static const struct {
	int gbit;
	uint8_t width, speed;
	const char *text;
} links[] = {
	{10, 1, 4, "10 Gb/sec (1X QDR)"},
	{25, 1, 32, "25 Gb/sec (1X EDR)"},
	{40, 2, 4, "40 Gb/sec (4X QDR)"},
	{50, 16, 32, "50 Gb/sec (2X EDR)"},
	{100, 2, 32, "100 Gb/sec (4X EDR)"},
};

void vhca_link_of(int gbit, uint8_t *width, uint8_t *speed, const char **text)
{
	size_t i = ARRAY_SIZE(links) - 1;

	while (i && links[i].gbit != gbit)
		i--;
	*width = links[i].width;
	*speed = links[i].speed;
	*text = links[i].text;
}
