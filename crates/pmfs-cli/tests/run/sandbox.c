/* Programs that change what they are, or what they may, while they have files open: other roots
 * and mounts, filters of system calls, other users; and descriptors that go to other processes. */
#include "check.h"
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/prctl.h>

static char got[4096];
static char *stranger;

/* What a sandboxed child has to say is its status. */
#define CHILD(body)                                                                                          \
    do {                                                                                                     \
        pid_t child = fork();                                                                                \
        if (child == 0) {                                                                                    \
            failures = 0;                                                                                    \
            body;                                                                                            \
            _exit(failures != 0);                                                                            \
        }                                                                                                    \
        CHECK(child_ends_with(child, 0));                                                                    \
    } while (0)

static void in_another_root(int fd) {
    CHECK(read(fd, got, 4) == 4 && memcmp(got, "0123", 4) == 0 && write(fd, "in", 2) == 2);
    /* Names are other ones now. */
    int other = open("/file", O_RDWR);
    CHECK(other >= 0 && read(other, got, 10) == 4 && memcmp(got, "root", 4) == 0 && write(other, "ed", 2) == 2);
    FAILS(ENOENT, access(in("file"), F_OK));
    int made = open("/made", O_RDWR | O_CREAT | O_EXCL, 0644);
    CHECK(made >= 0 && write(made, "made", 4) == 4 && rename("/made", "/dir/made") == 0);
    CHECK(chdir("/dir") == 0 && access("made", F_OK) == 0 && unlink("made") == 0);
    /* A program there: it has what was open. */
    if (access("/stranger", X_OK) == 0) {
        dup2(fd, 1);
        execl("/stranger", "stranger", "say", "out", NULL);
        CHECK(!"exec");
    }
}

static void roots(void) {
    char command[3 * PATH_MAX];
    NEED(mkdir(in("root"), 0755) == 0 && mkdir(in("root/dir"), 0755) == 0);
    snprintf(command, sizeof command, "cp %s %s", stranger, in("root/stranger"));
    NEED(system(command) == 0);
    file_with("root/file", "root");
    int fd = file_with("file", "0123456789");
    CHILD(CHECK(chroot(in("root")) == 0 && chdir("/") == 0); in_another_root(fd));
    CHECK(lseek(fd, 0, SEEK_CUR) == 9 && holds("file", "0123inout9") && holds("root/file", "rooted"));
    /* Elsewhere, where the pool is out of reach. */
    char outside[] = "/tmp/pmfs-root-XXXXXX";
    NEED(mkdtemp(outside));
    snprintf(command, sizeof command, "mkdir %s/dir && cp %s %s/stranger && printf root > %s/file", outside, stranger, outside, outside);
    NEED(system(command) == 0 && ftruncate(fd, 0) == 0 && pwrite(fd, "0123456789", 10, 0) == 10 && lseek(fd, 0, SEEK_SET) == 0);
    CHILD(CHECK(chroot(outside) == 0 && chdir("/") == 0); in_another_root(fd));
    CHECK(lseek(fd, 0, SEEK_CUR) == 9 && holds("file", "0123inout9"));
    snprintf(command, sizeof command, "rm -r %s", outside);
    NEED(system(command) == 0);
    /* Mounts of its own: what is mounted over the directory is what is found there. */
    CHILD(CHECK(unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
          CHECK(mount("none", in("root"), "tmpfs", 0, NULL) == 0); FAILS(ENOENT, access(in("root/file"), F_OK));
          int made = open(in("root/only here"), O_WRONLY | O_CREAT, 0644);
          CHECK(made >= 0 && write(made, "x", 1) == 1 && close(made) == 0 && holds("root/only here", "x"));
          CHECK(pread(fd, got, 4, 0) == 4 && holds("file", "0123inout9"));
          snprintf(command, sizeof command, "test $(wc -c < %s) = 10 && echo -n shell > %s", in("file"), in("shell"));
          CHECK(system(command) == 0));
    FAILS(ENOENT, access(in("root/only here"), F_OK));
    CHECK(holds("root/file", "rooted") && holds("shell", "shell"));
}

static void filter(unsigned refused, unsigned how) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refused, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, how),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof rules / sizeof rules[0], rules};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

/* Reading, writing, and what ends a program: nothing else, or it dies. */
static void only_what_it_needs(void) {
    static const int allowed[] = {SYS_read, SYS_write, SYS_lseek, SYS_close, SYS_exit_group, SYS_fstat, SYS_newfstatat, SYS_rt_sigreturn};
    struct sock_filter rules[64];
    int count = 0, all = sizeof allowed / sizeof allowed[0];
    rules[count++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int at = 0; at < all; at++) {
        rules[count++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[at], 0, 1);
        rules[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    rules[count++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    struct sock_fprog program = {count, rules};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
}

static void filters(void) {
    int fd = file_with("file", "0123456789");
    CHILD(only_what_it_needs(); struct stat stat;
          CHECK(read(fd, got, 4) == 4 && write(fd, "abc", 3) == 3 && lseek(fd, 0, SEEK_CUR) == 7 && fstat(fd, &stat) == 0 && stat.st_size == 10);
          close(fd));
    CHECK(lseek(fd, 0, SEEK_CUR) == 7 && holds("file", "0123abc789"));
    /* What a filter refuses is refused, also of what the library would have done
     * without the kernel. */
    CHILD(filter(SYS_openat, SECCOMP_RET_ERRNO | EXDEV); FAILS(EXDEV, open(in("file"), O_RDONLY));
          CHECK(pread(fd, got, 10, 0) == 10 && pwrite(fd, "X", 1, 0) == 1));
    CHILD(filter(SYS_unlink, SECCOMP_RET_ERRNO | EXDEV); FAILS(EXDEV, unlink(in("file"))); CHECK(holds("file", "X123abc789"));
          dup2(fd, 1); execl(stranger, stranger, "seek", "2", "say", "exec", NULL); _exit(9));
    CHECK(holds("file", "X1execc789"));
    /* Memory that is written is never executed: no matter, also for the next program. */
    NEED(lseek(fd, 0, SEEK_SET) == 0);
    CHILD(int denied = prctl(65, 1, 0, 0, 0); CHECK(denied == 0 || errno == EINVAL); CHECK(read(fd, got, 2) == 2 && holds("file", "X1execc789"));
          int made = open(in("made"), O_WRONLY | O_CREAT, 0644); CHECK(write(made, "made", 4) == 4); dup2(fd, 1);
          execl("/bin/sh", "sh", "-c", "printf deny", NULL); _exit(9));
    CHECK(holds("file", "X1denyc789") && lseek(fd, 0, SEEK_CUR) == 6);
    /* Under the library it is not there at all; elsewhere it refuses this. */
    long ring = syscall(SYS_io_uring_setup, 0, NULL);
    CHECK(ring == -1);
}

/* Paths that it gives up for good, by Landlock: what it may still have it has, what was
 * open stays, and the rest is refused. */
static void restrict_to(const char *path) {
    const __u64 all = (1 << 13) - 1; /* Of the first version. */
    struct landlock_ruleset_attr attributes = {.handled_access_fs = all};
    int rules = syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes.handled_access_fs, 0);
    struct landlock_path_beneath_attr beneath = {.allowed_access = all, .parent_fd = open(path, O_PATH | O_CLOEXEC)};
    NEED(rules >= 0 && beneath.parent_fd >= 0 && syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0) == 0);
    NEED(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && syscall(SYS_landlock_restrict_self, rules, 0) == 0);
    close(rules);
    close(beneath.parent_fd);
}

static void *in_a_thread(void *unused) {
    FAILS(EACCES, open(in("file"), O_RDONLY));
    CHECK(holds("allowed/file", "allowed"));
    return unused;
}

static void landlock(void) {
    if (syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION) < 1) {
        say("skipped: this kernel has no Landlock\n");
        return;
    }
    NEED(mkdir(in("allowed"), 0755) == 0);
    close(file_with("allowed/file", "allowed"));
    int fd = file_with("file", "0123456789");
    char command[3 * PATH_MAX];
    snprintf(command, sizeof command, "cp %s %s", stranger, in("allowed/stranger"));
    NEED(system(command) == 0 && read(fd, got, 1) == 1);
    CHILD(restrict_to(in("allowed")); FAILS(EACCES, open(in("file"), O_RDONLY)); FAILS(EACCES, open(in("new"), O_WRONLY | O_CREAT, 0644));
          FAILS(EACCES, unlink(in("file"))); FAILS(EACCES, mkdir(in("dir"), 0755));
          /* EXDEV: Linux before 5.19 or a link that would give more than it takes. */
          CHECK(rename(in("file"), in("allowed/moved")) == -1 && (errno == EACCES || errno == EXDEV));
          CHECK(read(fd, got, 3) == 3 && memcmp(got, "123", 3) == 0 && write(fd, "locked", 6) == 6 && lseek(fd, 0, SEEK_CUR) == 10);
          CHECK(holds("allowed/file", "allowed")); close(file_with("allowed/made", "made")); CHECK(unlink(in("allowed/made")) == 0);
          pthread_t thread; NEED(pthread_create(&thread, NULL, in_a_thread, NULL) == 0 && pthread_join(thread, NULL) == 0);
          pid_t inner = fork(); if (inner == 0) {
              in_a_thread(NULL);
              _exit(failures != 0);
          } CHECK(child_ends_with(inner, 0));
          FAILS(EACCES, execl("/bin/sh", "sh", "-c", "exit 0", NULL));
          /* What is started then has what was open. */
          NEED(lseek(fd, 1, SEEK_SET) == 1); dup2(fd, 1); execl(in("allowed/stranger"), "stranger", "say", "next", NULL); _exit(errno == EACCES ? 8 : 9));
    CHECK(lseek(fd, 0, SEEK_CUR) == 5 && holds("file", "0nextocked"));
    close(file_with("allowed/after", "x"));
}

/* Over a socket, to one that has the library and to one that has not. */
static void hand(int socket, int fd, int more) {
    char byte = 'x', control[CMSG_SPACE(2 * sizeof(int))] = {0};
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = CMSG_SPACE((more >= 0 ? 2 : 1) * sizeof(int))};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    int numbers[2] = {fd, more};
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN((more >= 0 ? 2 : 1) * sizeof(int));
    memcpy(CMSG_DATA(head), numbers, head->cmsg_len - CMSG_LEN(0));
    CHECK(sendmsg(socket, &message, 0) == 1);
}

static int receive(int socket, int *second) {
    char byte, control[CMSG_SPACE(2 * sizeof(int))];
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    int numbers[2] = {-1, -1};
    CHECK(recvmsg(socket, &message, 0) == 1);
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (head)
        memcpy(numbers, CMSG_DATA(head), head->cmsg_len - CMSG_LEN(0));
    if (second)
        *second = numbers[1];
    return numbers[0];
}

static void sent(void) {
    int pair[2], fd = file_with("file", "0123456789"), plain = open("/dev/null", O_WRONLY), nameless = file_with("gone", "nameless");
    NEED(unlink(in("gone")) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        failures = 0;
        close(fd);
        close(nameless);
        int other, mine = receive(pair[1], &other);
        CHECK(other >= 0 && write(other, "x", 1) == 1);
        CHECK(read(mine, got, 3) == 3 && memcmp(got, "234", 3) == 0 && write(mine, "child", 5) == 5);
        CHECK(write(pair[1], "r", 1) == 1);
        mine = receive(pair[1], NULL);
        CHECK(pread(mine, got, 8, 0) == 8 && memcmp(got, "nameless", 8) == 0 && pwrite(mine, "N", 1, 0) == 1);
        struct stat stat;
        CHECK(fstat(mine, &stat) == 0 && stat.st_nlink == 0 && stat.st_size == 8);
        _exit(failures != 0);
    }
    CHECK(read(fd, got, 2) == 2);
    hand(pair[0], fd, plain);
    char ready;
    CHECK(read(pair[0], &ready, 1) == 1);
    /* It was the same open file. */
    CHECK(lseek(fd, 0, SEEK_CUR) == 10 && holds("file", "01234child"));
    hand(pair[0], nameless, -1);
    CHECK(child_ends_with(pid, 0) && pread(nameless, got, 8, 0) == 8 && got[0] == 'N');
    /* Many at once, to oneself; a number that is none. */
    char byte[2] = {'a', 'b'}, control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec parts[2] = {{byte, 1}, {byte + 1, 1}};
    struct mmsghdr two[2] = {{.msg_hdr = {.msg_iov = parts, .msg_iovlen = 1}},
                             {.msg_hdr = {.msg_iov = parts + 1, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control}}};
    struct cmsghdr *head = CMSG_FIRSTHDR(&two[1].msg_hdr);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    CHECK(sendmmsg(pair[0], two, 2, 0) == 2 && two[0].msg_len == 1 && two[1].msg_len == 1 && read(pair[1], &ready, 1) == 1 && ready == 'a');
    int back = receive(pair[1], NULL);
    CHECK(back >= 0 && pread(back, got, 10, 0) == 10 && memcmp(got, "01234child", 10) == 0);
    int none = 12345;
    memcpy(CMSG_DATA(head), &none, sizeof none);
    FAILS(EBADF, sendmsg(pair[0], &two[1].msg_hdr, 0));
    /* By a name of another process's descriptors: right, or refused. */
    pid = fork();
    if (pid == 0) {
        pause();
        _exit(0);
    }
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
    int through = open(path, O_RDONLY), why = errno;
    CHECK(through >= 0 ? pread(through, got, 10, 0) == 10 : why == ENXIO);
    struct stat stat;
    CHECK((lstat(path, &stat) == 0 && S_ISLNK(stat.st_mode)) && (stat.st_size > 0));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    /* What nobody would tell of is not promised. */
    int queue = inotify_init1(IN_NONBLOCK), watch = inotify_add_watch(queue, dir, IN_CREATE | IN_MODIFY);
    why = errno;
    if (watch >= 0) {
        close(file_with("watched", "x"));
        CHECK(read(queue, got, sizeof got) > 0);
    } else {
        CHECK(why == EOPNOTSUPP);
    }
    CHECK(inotify_add_watch(queue, "/tmp", IN_CREATE) >= 0);
    FAILS(ENOENT, inotify_add_watch(queue, in("none"), IN_CREATE));
}

/* setuid and setgid by one of eight busy threads. */
static volatile int stop, refused, allowed;
static void *busy(void *number) {
    char name[32];
    snprintf(name, sizeof name, "busy%ld", (long)number);
    while (!stop) {
        int fd = open(in(name), O_RDWR | O_CREAT, 0644);
        NEED(fd >= 0 && write(fd, "x", 1) == 1 && close(fd) == 0);
        fd = open(in("secret"), O_RDONLY);
        if (fd >= 0)
            allowed++, close(fd);
        else
            refused++;
    }
    return NULL;
}

static void users(void) {
    int secret = file_with("secret", "secret");
    NEED(fchmod(secret, 0600) == 0 && chmod(dir, 0777) == 0);
    int kept = open(in("kept"), O_RDWR | O_CREAT, 0600);
    for (int at = 0; at < 8; at++) {
        char name[32];
        snprintf(name, sizeof name, "busy%d", at);
        NEED(fchmod(file_with(name, ""), 0666) == 0);
    }
    CHILD(pthread_t threads[8]; for (long at = 0; at < 8; at++) NEED(pthread_create(&threads[at], NULL, busy, (void *)at) == 0);
          while (allowed < 100) usleep(100);
          CHECK(setegid(1) == 0 && seteuid(1) == 0); refused = 0; while (refused < 100) usleep(100);
          FAILS(EACCES, open(in("secret"), O_RDONLY)); int made = open(in("by 1"), O_RDWR | O_CREAT, 0644); struct stat stat;
          CHECK(fstat(made, &stat) == 0 && stat.st_uid == 1 && stat.st_gid == 1);
          CHECK(seteuid(0) == 0 && setegid(0) == 0); allowed = 0; while (allowed < 100) usleep(100);
          CHECK(setgid(1) == 0 && setuid(1) == 0); refused = 0; while (refused < 100) usleep(100);
          FAILS(EPERM, setuid(0)); FAILS(EACCES, open(in("secret"), O_RDONLY));
          CHECK(read(secret, got, 6) == 6 && write(kept, "dropped ", 8) == 8); stop = 1;
          for (int at = 0; at < 8; at++) pthread_join(threads[at], NULL);
          /* What is open goes on to programs that may not have the pool. */
          dup2(kept, 1); if (fork() == 0) { execl(stranger, stranger, "say", "static ", NULL); _exit(9); } wait(NULL);
          CHECK(write(kept, "again ", 6) == 6); execl("/bin/sh", "sh", "-c", "echo -n shell", NULL));
    CHECK(holds("kept", "dropped static again shell"));
    /* One thread alone is somebody else. */
    CHILD(CHECK(syscall(SYS_setresuid, -1, 1, -1) == 0); FAILS(EACCES, open(in("secret"), O_RDONLY));
          CHECK(syscall(SYS_setresuid, -1, 0, -1) == 0 && open(in("secret"), O_RDONLY) >= 0));
}

/* Users that come and go under threads that are in the middle of calls, many times;
 * what they may not have they never get. */
static volatile int outside;
static void *busier(void *number) {
    char name[32], moved[32], text[600] = "";
    snprintf(name, sizeof name, "busy%ld", (long)number);
    snprintf(moved, sizeof moved, "moved%ld", (long)number);
    struct stat stat;
    while (!stop) {
        int fd = open(in(name), O_RDWR | O_CREAT, 0666);
        if (fd < 0)
            continue;
        NEED(write(fd, text, sizeof text) == sizeof text && pread(fd, text, 100, 0) == 100 && fstat(fd, &stat) == 0 && ftruncate(fd, 0) == 0);
        if (stat.st_uid > 1)
            outside++;
        NEED(close(fd) == 0 && rename(in(name), in(moved)) == 0 && rename(in(moved), in(name)) == 0 && unlink(in(name)) == 0);
    }
    return NULL;
}

static void storm(void) {
    const char *asked = getenv("PMFS_SETUIDS");
    int rounds = asked ? atoi(asked) : 25;
    NEED(chmod(dir, 0777) == 0 && fchmod(file_with("secret", "secret"), 0600) == 0);
    CHILD(pthread_t threads[8]; for (long at = 0; at < 8; at++) NEED(pthread_create(&threads[at], NULL, busier, (void *)at) == 0);
          for (int round = 0; round < rounds; round++) {
              CHECK(setegid(1) == 0 && seteuid(1) == 0);
              FAILS(EACCES, open(in("secret"), O_RDONLY));
              CHECK(seteuid(0) == 0 && setegid(0) == 0 && holds("secret", "secret"));
          }
          CHECK(setgid(1) == 0 && setuid(1) == 0); usleep(5000); FAILS(EACCES, open(in("secret"), O_RDONLY)); stop = 1;
          for (int at = 0; at < 8; at++) pthread_join(threads[at], NULL); CHECK(outside == 0));
    CHECK(holds("secret", "secret"));
    close(file_with("after", "x"));
    say("%d changes of user under eight busy threads\n", 4 * rounds + 2);
}

static void *as_another(void *unused) {
    CHECK(syscall(SYS_setfsuid, 1) == 0);
    FAILS(EACCES, open(in("secret"), O_RDONLY));
    int made = open(in("by a thread"), O_RDWR | O_CREAT, 0644);
    struct stat stat;
    CHECK(fstat(made, &stat) == 0 && stat.st_uid == 1);
    return unused;
}

static void threads(void) {
    int secret = file_with("secret", "secret");
    NEED(fchmod(secret, 0600) == 0 && chmod(dir, 0777) == 0 && open(in("secret"), O_RDONLY) >= 0);
    pthread_t thread;
    NEED(pthread_create(&thread, NULL, as_another, NULL) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(open(in("secret"), O_RDONLY) >= 0);
    int made = open(in("by root"), O_RDWR | O_CREAT, 0644);
    struct stat stat;
    CHECK(fstat(made, &stat) == 0 && stat.st_uid == 0);
}

int main(int count, char **arguments) {
    NEED(count == 4);
    dir = arguments[3];
    stranger = arguments[2];
    const char *what = arguments[1];
    if (!strcmp(what, "roots"))
        roots();
    else if (!strcmp(what, "filters"))
        filters();
    else if (!strcmp(what, "sent"))
        sent();
    else if (!strcmp(what, "users"))
        users();
    else if (!strcmp(what, "storm"))
        storm();
    else if (!strcmp(what, "landlock"))
        landlock();
    else if (!strcmp(what, "threads"))
        threads();
    else
        return 98;
    say("%s: %d failures\n", what, failures);
    return failures != 0;
}
