/* What cachestat(2) tells of a file's pages, and what it answers where something is wrong. */
#include "check.h"
#include <grp.h>
#include <stdint.h>

#ifndef SYS_cachestat
#define SYS_cachestat 451
#endif
#ifndef FALLOC_FL_PUNCH_HOLE
#include <linux/falloc.h>
#endif

#define PAGE 4096L

static int file;

static void told(const char *what, int of, const uint64_t *range, uint64_t *answer, unsigned flags) {
    errno = 0;
    long done = syscall(SYS_cachestat, of, range, answer, flags);
    say("%s: %ld %s", what, done, done < 0 ? strerrorname_np(errno) : "");
    /* Of what it answers, where it could. */
    for (int word = 0; done == 0 && word < 5; word++)
        say(" %lu", (unsigned long)answer[word]);
    say("\n");
}

static void range(uint64_t at, uint64_t bytes) {
    char what[80];
    uint64_t asked[2] = {at, bytes}, answer[5] = {1, 1, 1, 1, 1};
    snprintf(what, sizeof what, "%#lx + %#lx", (unsigned long)at, (unsigned long)bytes);
    told(what, file, asked, answer, 0);
}

static void ranges(void) {
    static const uint64_t at[] = {0, 1, PAGE - 1, PAGE, 3 * PAGE, 8 * PAGE, 1 << 20, -1, -PAGE};
    static const uint64_t bytes[] = {0, 1, 2, PAGE, PAGE + 1, 5 * PAGE, 1 << 24, -1};
    for (size_t from = 0; from < sizeof at / sizeof *at; from++)
        for (size_t len = 0; len < sizeof bytes / sizeof *bytes; len++)
            range(at[from], bytes[len]);
}

static void contents(void) {
    say("nothing\n"), ranges();
    NEED(pwrite(file, "x", 1, 0) == 1);
    say("a byte\n"), ranges();
    NEED(pwrite(file, "yy", 2, 5 * PAGE - 1) == 2);
    say("a byte, and two on two pages\n"), ranges();
    static char much[64 * 4096];
    NEED(pwrite(file, much, sizeof much, 16 * PAGE) == sizeof much);
    say("and much\n"), ranges();
    NEED(ftruncate(file, 1 << 24) == 0);
    say("longer\n"), ranges();
    NEED(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 20 * PAGE, 7 * PAGE) == 0);
    say("with a hole\n"), ranges();
    NEED(ftruncate(file, 18 * PAGE + 1) == 0);
    say("cut\n"), ranges();
    NEED(fsync(file) == 0);
    say("synced\n"), ranges();
}

static void answers(void) {
    uint64_t whole[2] = {0, 0}, answer[5], *none = NULL, *bad = (uint64_t *)8;
    told("flags", file, whole, answer, 1);
    told("flags, no range", file, none, answer, 1);
    told("no range", file, none, answer, 0);
    told("bad range", file, bad, answer, 0);
    told("no answer", file, whole, none, 0);
    told("flags, no answer", file, whole, none, 1);
    told("no file", -1, whole, answer, 0);
    told("no file, no range", -1, none, answer, 1);
    int closed = dup(file);
    close(closed);
    told("closed", closed, whole, answer, 0);
    int other = open(in("file"), O_PATH);
    told("O_PATH", other, whole, answer, 0);
    close(other), other = open(dir, O_RDONLY | O_DIRECTORY);
    told("directory", other, whole, answer, 0);
    close(other), other = open(in("file"), O_RDONLY);
    told("read only", other, whole, answer, 0);
    close(other), other = open(in("file"), O_WRONLY);
    told("write only", other, whole, answer, 0);
    close(other);
}

/* Only to who may write to a file is said what of it is in memory, from Linux 6.13 on. */
static void stranger(int flags, mode_t mode) {
    uint64_t whole[2] = {0, 0}, answer[5];
    NEED(fchmod(file, mode) == 0);
    int other = open(in("file"), flags);
    NEED(other >= 0);
    pid_t child = fork();
    if (child == 0) {
        NEED(setgroups(0, NULL) == 0 && setegid(65534) == 0 && seteuid(65534) == 0);
        char what[40];
        snprintf(what, sizeof what, "stranger, %o %o", flags, mode);
        told(what, other, whole, answer, 0);
        _exit(failures);
    }
    int status;
    NEED(waitpid(child, &status, 0) == child && status == 0);
    close(other);
}

int main(int count, char **arguments) {
    NEED(count == 3);
    dir = arguments[2];
    NEED((file = open(in("file"), O_CREAT | O_RDWR, 0600)) >= 0);
    contents();
    answers();
    if (geteuid() == 0) {
        stranger(O_RDONLY, 0644), stranger(O_RDWR, 0644), stranger(O_RDONLY, 0606), stranger(O_RDONLY, 0660);
    }
    return failures;
}
