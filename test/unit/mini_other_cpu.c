/* mini_other_cpu.c - the checks of compressed completions without cmocka: for a CPU that only an
 * emulator has here */

#include "mini_ring.h"

#include <stdio.h>

static int failed;

static void must_be_well(
	const char *what, const struct mini_decoder *decoder, const char *complaint)
{
	printf("%s, %s: %s\n", what, decoder->name, complaint ? complaint : "ok");
	failed |= complaint != NULL;
}

static void check(const struct mini_decoder *decoder)
{
	must_be_well("sessions", decoder, mini_check_sessions(decoder, 300000));
	must_be_well("lengths", decoder, mini_check_lengths(decoder));
	must_be_well("hostile rings", decoder, mini_check_spoilt(decoder, 300));
}

int main(void)
{
	const struct mini_decoder *vector = vbn__mini_decoder();

	if (vector == &vbn__mini_scalar) {
		printf("this CPU has no vector decoder\n");
		return 1;
	}
	check(&vbn__mini_scalar);
	check(vector);
	must_be_well(
		"the same of both", vector, mini_check_equal(&vbn__mini_scalar, vector, 1000000));
	return failed;
}
