/* What a program starts that the library is not loaded into gets its open files all the
 * same: with its offsets, both ways. */
#include "check.h"
#include <linux/capability.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/xattr.h>

extern char **environ;
static char *stranger;
static char got[4096];

/* With these on its standard streams; its status. */
static int run(int in_fd, int out_fd, char *const arguments[]) {
    pid_t pid = fork();
    if (pid == 0) {
        if (in_fd >= 0)
            dup2(in_fd, 0);
        if (out_fd >= 0)
            dup2(out_fd, 1);
        execv(stranger, arguments);
        _exit(90);
    }
    int status = -1;
    NEED(waitpid(pid, &status, 0) == pid);
    if (status != 0)
        say("the stranger: status %#x\n", status);
    return status;
}

#define RUN(in_fd, out_fd, ...) run(in_fd, out_fd, (char *[]){stranger, __VA_ARGS__, NULL})

static void streams(void) {
    int from = file_with("from", "0123456789"), to = file_with("to", "");
    /* Its streams begin where ours are, and ours go on where its end. */
    CHECK(read(from, got, 2) == 2 && write(to, "first ", 6) == 6);
    CHECK(RUN(from, to, "tell", "6", "take", "3", "say", " second ") == 0);
    CHECK(lseek(from, 0, SEEK_CUR) == 5 && lseek(to, 0, SEEK_CUR) == 17);
    CHECK(read(from, got, 1) == 1 && got[0] == '5' && write(to, "third ", 6) == 6);
    CHECK(RUN(from, to, "copy", "say", " fourth") == 0);
    CHECK(read(from, got, 1) == 0 && holds("to", "first 234 second third 6789 fourth"));
    /* It goes elsewhere: so do we. */
    CHECK(RUN(-1, to, "seek", "0", "say", "FIRST") == 0);
    CHECK(write(to, "+", 1) == 1 && holds("to", "FIRST+234 second third 6789 fourth"));
    /* In turns, without an end of the one before the other's. */
    to = file_with("turns", "");
    for (int turn = 0; turn < 20; turn++)
        CHECK(write(to, "o", 1) == 1 && RUN(-1, to, "say", "s") == 0);
    CHECK(holds("turns", "osososososososososososososososososososos"));
    /* Two that live at the same time. */
    to = file_with("both", "");
    int ends[2];
    NEED(pipe(ends) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[0], 0);
        dup2(to, 1);
        close(ends[1]);
        execl(stranger, stranger, "say", "started ", "copy", "say", " ended", NULL);
        _exit(90);
    }
    struct stat stat;
    while (fstat(to, &stat) == 0 && stat.st_size < 8)
        usleep(1000);
    CHECK(write(to, "meanwhile ", 10) == 10 && write(ends[1], "piped", 5) == 5);
    close(ends[0]);
    close(ends[1]);
    CHECK(child_ends_with(pid, 0) && write(to, " all", 4) == 4);
    CHECK(holds("both", "started meanwhile piped ended all"));
    /* At the end, wherever that is. */
    int end = open(in("end"), O_WRONLY | O_CREAT | O_APPEND, 0644), other = open(in("end"), O_WRONLY | O_APPEND);
    CHECK(write(end, "a", 1) == 1 && RUN(-1, end, "say", "b") == 0 && write(other, "c", 1) == 1);
    CHECK(RUN(-1, end, "say", "d") == 0 && write(end, "e", 1) == 1 && holds("end", "abcde"));
}

static void files(void) {
    char path[2][PATH_MAX];
    snprintf(path[0], PATH_MAX, "%s", in("named"));
    snprintf(path[1], PATH_MAX, "%s", in("new"));
    file_with("named", "named ");
    char numbered[PATH_MAX];
    snprintf(numbered, PATH_MAX, "%s", in(".pmfs-inode-3"));
    file_with(".pmfs-inode-3", "not by number");
    int to = file_with("to", "");
    CHECK(RUN(-1, to, "show", path[0], "make", path[1], "show", path[1]) == 0);
    CHECK(holds("to", "named made") && holds("new", "made") && unlink(in("new")) == 0);
    NEED(ftruncate(to, 0) == 0 && lseek(to, 0, SEEK_SET) == 0);
    CHECK(RUN(-1, to, "show", numbered) == 0 && holds("to", "not by number"));
    /* One without a name; one that closes on exec; a directory. */
    int nameless = file_with("nameless", "nameless ");
    NEED(unlink(in("nameless")) == 0 && mkdir(in("sub"), 0755) == 0);
    file_with("sub/below", "below");
    int sub = open(in("sub"), O_RDONLY | O_DIRECTORY), private = open(in("named"), O_RDONLY | O_CLOEXEC);
    NEED(dup2(sub, 70) == 70 && dup3(private, 71, O_CLOEXEC) == 71 && ftruncate(to, 0) == 0 && lseek(to, 0, SEEK_SET) == 0);
    CHECK(RUN(nameless, to, "copy", "below", "70", "closed", "71") == 0 && holds("to", "nameless below"));
    CHECK(pread(71, got, 10, 0) == 6 && openat(70, "below", O_RDONLY) >= 0);
    /* What it starts itself is served in the process again, or not: the same files. */
    NEED(ftruncate(to, 0) == 0 && lseek(to, 0, SEEK_SET) == 0);
    char script[PATH_MAX + 100];
    snprintf(script, sizeof script, "echo from the shell; cat %s; echo", path[0]);
    CHECK(RUN(-1, to, "say", "run ", "run", "/bin/sh", "-c", script) == 0);
    CHECK(holds("to", "run from the shell\nnamed \n") && lseek(to, 0, SEEK_CUR) == 26);
    /* By posix_spawn, and without an environment. */
    NEED(ftruncate(to, 0) == 0 && lseek(to, 0, SEEK_SET) == 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to, 1);
    posix_spawn_file_actions_addopen(&actions, 0, path[0], O_RDONLY, 0);
    char *none[] = {NULL}, *spawned[] = {stranger, "copy", "say", "spawned ", NULL};
    pid_t pid;
    CHECK(posix_spawn(&pid, stranger, &actions, NULL, spawned, environ) == 0 && child_ends_with(pid, 0));
    CHECK(posix_spawn(&pid, stranger, &actions, NULL, spawned, none) == 0 && child_ends_with(pid, 0));
    CHECK(write(to, "done", 4) == 4 && holds("to", "named spawned named spawned done"));
    /* What a program has preloaded besides, before or behind. */
    CHECK(system("LD_PRELOAD=libm.so.6:$LD_PRELOAD grep -q libm.so.6 /proc/self/maps") == 0);
    CHECK(system("LD_PRELOAD=$LD_PRELOAD:libm.so.6 grep -q libm.so.6 /proc/self/maps") == 0);
    CHECK(system("LD_PRELOAD=libm.so.6 grep -q libm.so.6 /proc/self/maps; ! grep -q 'libm.so\\|libasan' /proc/self/maps") == 0);
    /* It is not there, or can't be run: all is as it was. */
    int status = system("exec /none 2> /dev/null");
    CHECK(WEXITSTATUS(status) == 127);
    FAILS(EACCES, execl(in("named"), "named", NULL));
    CHECK(write(to, "!", 1) == 1 && lseek(to, 0, SEEK_CUR) == 33);
}

/* From a copy in the pool, by its descriptor. */
static void from_the_pool(void) {
    char command[2 * PATH_MAX];
    snprintf(command, sizeof command, "cp %s %s", stranger, in("copied"));
    NEED(system(command) == 0 && chmod(in("copied"), 0755) == 0);
    int to = file_with("to", ""), program = open(in("copied"), O_RDONLY | O_CLOEXEC);
    static char moved[PATH_MAX];
    snprintf(moved, sizeof moved, "%s", in("copied"));
    pid_t pid = fork();
    if (pid == 0) {
        dup2(to, 1);
        char *arguments[] = {"copied", "say", "by descriptor ", NULL};
        fexecve(program, arguments, environ);
        _exit(90);
    }
    CHECK(child_ends_with(pid, 0));
    stranger = moved;
    CHECK(RUN(-1, to, "say", "by name ") == 0 && write(to, "back", 4) == 4);
    CHECK(holds("to", "by descriptor by name back"));
    /* A script in the pool, by its descriptor and by name. */
    int text = open(in("script"), O_RDWR | O_CREAT | O_TRUNC, 0755);
    NEED(write(text, "#!/bin/sh\necho script $1\n", 25) == 25 && close(text) == 0);
    text = open(in("script"), O_RDONLY);
    NEED(lseek(to, 0, SEEK_SET) == 0 && ftruncate(to, 0) == 0);
    pid = fork();
    if (pid == 0) {
        dup2(to, 1);
        char *arguments[] = {"script", "one", NULL};
        fexecve(text, arguments, environ);
        _exit(90);
    }
    CHECK(child_ends_with(pid, 0));
    snprintf(command, sizeof command, "%s two", in("script"));
    int kept = dup(1);
    dup2(to, 1);
    int status = system(command);
    dup2(kept, 1);
    CHECK(status == 0 && holds("to", "script one\nscript two\n"));
}

/* Set-uid and set-gid programs, and all that a program starts whose users differ: the
 * loader leaves the library out. */
static void other_users(void) {
    char owned[PATH_MAX];
    snprintf(owned, sizeof owned, "/tmp/pmfs-stranger-%d", getpid());
    char command[3 * PATH_MAX];
    snprintf(command, sizeof command, "cp %s %s && chown 1:1 %s && chmod 6755 %s", stranger, owned, owned, owned);
    NEED(system(command) == 0);
    int from = file_with("from", "0123456789"), to = file_with("to", "");
    char *before = stranger;
    stranger = owned;
    CHECK(read(from, got, 1) == 1 && RUN(from, to, "who", "take", "4", "say", " ") == 0);
    CHECK(read(from, got, 1) == 1 && got[0] == '5' && write(to, "back ", 5) == 5);
    stranger = before;
    unlink(owned);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(to, 1);
        NEED(seteuid(1) == 0);
        execl(stranger, stranger, "who", "say", "differs ", NULL);
        _exit(90);
    }
    CHECK(child_ends_with(pid, 0) && write(to, "end", 3) == 3);
    CHECK(holds("to", "0 1 1234 back 0 1 differs end"));
}

/* A program whose file gives it capabilities: the loader leaves the library out of it too. */
static void capabilities(void) {
    static char owned[PATH_MAX];
    char command[3 * PATH_MAX];
    struct vfs_cap_data may = {VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE, {{1 << CAP_DAC_OVERRIDE, 0}, {0, 0}}};
    snprintf(owned, sizeof owned, "/tmp/pmfs-capable-%d", getpid());
    snprintf(command, sizeof command, "cp %s %s && chmod 755 %s", stranger, owned, owned);
    NEED(system(command) == 0 && setxattr(owned, "security.capability", &may, sizeof may, 0) == 0);
    int from = file_with("from", "0123456789"), to = file_with("to", "");
    NEED(fchmod(file_with("secret", "secret "), 0) == 0 && chmod(dir, 0755) == 0);
    static char secret[PATH_MAX];
    snprintf(secret, sizeof secret, "%s", in("secret"));
    char *before = stranger;
    stranger = owned;
    CHECK(read(from, got, 1) == 1 && RUN(from, to, "take", "2", "say", " root ") == 0);
    /* Those who have nothing but what the file gives: somebody else, who without it may
     * not; and a root that has given up all else, but may have the pool. */
    for (int way = 0; way < 3; way++) {
        pid_t pid = fork();
        if (pid == 0) {
            struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
            struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
            dup2(from, 0);
            dup2(to, 1);
            NEED(way == 2 || (setresgid(1, 1, 1) == 0 && setresuid(1, 1, 1) == 0));
            NEED(way != 2 || (prctl(PR_SET_SECUREBITS, 1 /* SECBIT_NOROOT */) == 0 && syscall(SYS_capset, &head, none) == 0));
            FAILS(EACCES, open(secret, O_RDONLY));
            execl(way ? owned : before, "stranger", "who", "take", "1", "say", " ", "show", secret, NULL);
            _exit(90);
        }
        CHECK(child_ends_with(pid, way ? 0 : 7 << 8));
    }
    unlink(owned);
    CHECK(read(from, got, 1) == 1 && got[0] == '6' && write(to, "back", 4) == 4);
    CHECK(holds("to", "12 root 1 1 3 1 1 4 secret 0 0 5 secret back"));
    stranger = before;
}

/* By an ordinary user, who has a program that runs as root, or with more rights than
 * he: it has what he has open. */
static void ordinary(int euid) {
    int from = file_with("from", "0123456789"), to = file_with("to", "");
    CHECK(getuid() != 0 && read(from, got, 2) == 2 && write(to, "first ", 6) == 6);
    CHECK(RUN(from, to, "who", "take", "3", "say", " second ") == 0);
    CHECK(read(from, got, 1) == 1 && got[0] == '5' && write(to, "third ", 6) == 6);
    int nameless = file_with("nameless", "nameless");
    NEED(unlink(in("nameless")) == 0);
    CHECK(RUN(nameless, to, "copy") == 0 && write(to, "!", 1) == 1);
    snprintf(got, sizeof got, "first %d %d 234 second third nameless!", getuid(), euid);
    char expected[100];
    snprintf(expected, sizeof expected, "%s", got);
    CHECK(holds("to", expected));
}

int main(int count, char **arguments) {
    NEED(count == 4);
    dir = arguments[3];
    stranger = arguments[2];
    const char *what = arguments[1];
    if (!strcmp(what, "streams"))
        streams();
    else if (!strcmp(what, "files"))
        files();
    else if (!strcmp(what, "pool"))
        from_the_pool();
    else if (!strcmp(what, "capabilities"))
        capabilities();
    else if (!strcmp(what, "set-uid"))
        ordinary(0);
    else if (!strcmp(what, "capable"))
        ordinary(getuid());
    else if (!strcmp(what, "users"))
        other_users();
    else
        return 98;
    say("%s: %d failures\n", what, failures);
    return failures != 0;
}
