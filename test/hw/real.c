/* real.c - in place of the emulated device, for tests that ask whether they are linked with it: here
 * they run on the device that libibverbs finds, a real one or `verbena vhca --`'s */

const char *vhca_present(void);

const char *vhca_present(void)
{
	return "no: whatever device there is";
}
