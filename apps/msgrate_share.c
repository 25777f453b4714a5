/* msgrate_share.c - whether a worker's core is another process's, too: then its figures are half of what
 * they were alone
 */
#include "msgrate.h"

void cores_say_shared(const struct run *run)
{
	static pid_t on[MAX_CORES];

	pollers_find(true, on);
	for (int i = 0; i < run->n_sides; i++) {
		const int core = run->sides[i].core;
		char name[16];

		if (!on[core])
			continue;
		process_name(on[core], name);
		say("core %d is shared: process %d (%s) has a busy thread pinned to it, too, so each gets a part of "
		    "it; give --cores others",
			core, on[core], *name ? name : "?");
		return;
	}
}
