/* The calls of `pmbench calls --held` with nothing around them: calls FILE CALL COUNT makes FILE as the driver makes its own, prints
 * microseconds for each call, and deletes it. */
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static _Alignas(4096) char block[4096];

/* 64 MiB a MiB at a time, as the driver does: beside a file made otherwise its figures on ext4 strayed, most likely for the folios of the page cache. */
static void prepare(const char *path, int is_empty)
{
	static char whole[1 << 20];
	int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	if (file < 0)
		err(1, "%s", path);
	memset(whole, 1, sizeof whole);
	for (int mib = 0; mib < (is_empty ? 0 : 64); mib++)
		if (write(file, whole, sizeof whole) != sizeof whole)
			err(1, "%s", path);
	if (syncfs(file) != 0)
		err(1, "%s", path);
	close(file);
}

int main(int count, char **given)
{
	if (count != 4)
		errx(2, "usage: calls FILE CALL COUNT");
	int reads = !strcmp(given[2], "read4k"), appends = !strcmp(given[2], "append4k");
	size_t bytes = strcmp(given[2], "write512") ? 4096 : 512;
	long calls = atol(given[3]);
	prepare(given[1], appends);
	int file = open(given[1], (reads ? O_RDONLY : O_WRONLY) | (appends ? O_APPEND : 0));
	if (file < 0)
		err(1, "%s", given[1]);
	/* A page of its own: what was never stored to is the kernel's one page of zeros, by which a
	 * write of 4 KiB below pmfs run takes a tenth less. */
	memset(block, 3, sizeof block);
	struct timespec start, end;
	clock_gettime(CLOCK_MONOTONIC, &start);
	for (long call = 0; call < calls; call++) {
		ssize_t done = reads ? pread(file, block, bytes, 32 << 20) :
			appends ? write(file, block, bytes) : pwrite(file, block, bytes, 32 << 20);
		if (done != (ssize_t)bytes || (!reads && fsync(file) != 0))
			err(1, "%s", given[2]);
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	printf("%.3f\n", ((end.tv_sec - start.tv_sec) * 1e9 + end.tv_nsec - start.tv_nsec) / 1e3 / calls);
	if (unlink(given[1]) != 0)
		err(1, "%s", given[1]);
}
