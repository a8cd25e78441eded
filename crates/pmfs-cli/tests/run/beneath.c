/* Works on files as it is told, a word at a time, while others do to its mount what
 * they like; it says how that went. */
#include "check.h"
#include <sys/mount.h>

static int kept;
static int rounds;
static char got[4096];

/* Everything that needs no mount. */
static void work(void) {
    char text[32];
    snprintf(text, sizeof text, "round %d\n", rounds++);
    CHECK(pwrite(kept, text, 8, 8 * (rounds - 1)) == 8 && pread(kept, got, 8, 0) == 8 && memcmp(got, "round 0\n", 8) == 0);
    int made = open(in("made"), O_RDWR | O_CREAT | O_EXCL, 0644);
    struct stat stat;
    CHECK(made >= 0 && write(made, "made", 4) == 4 && fstat(made, &stat) == 0 && stat.st_size == 4 && close(made) == 0);
    CHECK(rename(in("made"), in("moved")) == 0 && holds("moved", "made") && unlink(in("moved")) == 0);
    FAILS(ENOENT, access(in("moved"), F_OK));
    CHECK(mkdir(in("dir"), 0755) == 0 && rmdir(in("dir")) == 0);
}

/* A program that is served too has the open file, whatever the mount is. */
static void hand_to_ours(void) {
    pid_t pid = fork();
    if (pid == 0) {
        dup2(kept, 1);
        execl("/bin/sh", "sh", "-c", "printf sh", NULL);
        _exit(90);
    }
    CHECK(child_ends_with(pid, 0));
}

/* One that is not served has it from the mount: right, or it fails and says so. What it
 * said it wrote is there. */
static void hand_over(const char *stranger) {
    CHECK(ftruncate(kept, 0) == 0 && lseek(kept, 0, SEEK_SET) == 0);
    rounds = 0;
    pid_t pid = fork();
    if (pid == 0) {
        dup2(kept, 1);
        execl(stranger, "stranger", "say", "stranger", NULL);
        _exit(90);
    }
    int status = -1;
    NEED(waitpid(pid, &status, 0) == pid);
    ssize_t len = pread(kept, got, sizeof got, 0);
    if (status == 0)
        CHECK(len == 8 && memcmp(got, "stranger", 8) == 0);
    else
        CHECK(len == 0);
    say(status == 0 ? "it has the file\n" : "it says that it has not\n");
}

int main(int count, char **arguments) {
    NEED(count == 3);
    dir = arguments[2];
    kept = file_with("kept", "");
    say("ready\n");
    char word[100];
    while (fgets(word, sizeof word, stdin)) {
        if (!strcmp(word, "work\n"))
            work();
        else if (!strcmp(word, "ours\n"))
            hand_to_ours();
        else if (!strcmp(word, "stranger\n"))
            hand_over(arguments[1]);
        say("done, %d failures\n", failures);
    }
    return failures != 0;
}
