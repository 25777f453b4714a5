/* held.h - what this process holds: descriptors, and mappings by name, so that tests see that nothing is left */
#ifndef UNIT_HELD_H
#define UNIT_HELD_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* With the one that it is counted by. */
static inline int held_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	if (!dir)
		abort();
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static inline int held_mappings(const char *name)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	int n = 0;

	if (!maps)
		abort();
	while (fgets(line, sizeof(line), maps))
		n += strstr(line, name) != NULL;
	fclose(maps);
	return n;
}

#endif
