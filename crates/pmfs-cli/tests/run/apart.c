/* Where there is no mount: the working directory, descriptors of places, programs in
 * the pool, and what is refused. */
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/un.h>
#include <sys/xattr.h>

extern char **environ;

static char got[4096];

static long raw(long number, long a, long b, long c) {
    long answer;
    __asm__ volatile("syscall" : "=a"(answer) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return answer;
}

static int stands_in(const char *name) {
    char want[PATH_MAX];
    snprintf(want, sizeof want, "%s%s%s", dir, *name ? "/" : "", name);
    return getcwd(got, sizeof got) != NULL && strcmp(got, want) == 0;
}

static void *walker(void *turns) {
    for (int turn = 0; turn < *(int *)turns; turn++)
        CHECK(access(".", X_OK) == 0 && getcwd((char[PATH_MAX]){0}, PATH_MAX) != NULL);
    return NULL;
}

/* A child that shares this memory goes about, and this process keeps its own directory,
 * also one without a name. */
static void kept_beside_a_guest(void) {
    NEED(mkdir(in("kept"), 0755) == 0 && mkdir(in("kept/guest"), 0755) == 0 && mkdir(in("kept/own"), 0755) == 0);
    CHECK(chdir(in("kept/own")) == 0);
    pid_t pid = vfork();
    if (pid == 0)
        _exit(chdir("../guest") != 0 || access("../own", F_OK) != 0 || chdir("/") != 0 || chdir(in("kept/guest")) != 0);
    CHECK(child_ends_with(pid, 0) && stands_in("kept/own") && rmdir("../own") == 0);
    for (int made = 0; made < 40; made++) {
        char name[40];
        snprintf(name, sizeof name, "kept/new%d", made);
        NEED(mkdir(in(name), 0755) == 0);
    }
    FAILS(ENOENT, open("made", O_CREAT | O_RDWR, 0644));
    struct stat stat;
    CHECK(fstatat(AT_FDCWD, ".", &stat, 0) == 0 && stat.st_nlink == 0 && chdir(dir) == 0);
    CHECK(rmdir(in("kept/guest")) == 0);
}

static void working_directory(void) {
    NEED(mkdir(in("a"), 0755) == 0 && mkdir(in("a/b"), 0755) == 0);
    close(file_with("file", "text"));
    CHECK(chdir(dir) == 0 && stands_in("") && chdir("a/b") == 0 && stands_in("a/b") && chdir("..") == 0 && stands_in("a"));
    CHECK(access("../file", F_OK) == 0 && access("b", X_OK) == 0);
    /* What fails changes nothing. */
    FAILS(ENOENT, chdir("/none"));
    FAILS(ENOENT, chdir("none"));
    FAILS(ENOTDIR, chdir("../file"));
    FAILS(ENOTDIR, chdir("/etc/passwd"));
    CHECK(stands_in("a"));
    FAILS(ENAMETOOLONG, chdir(memset(got, 'x', sizeof got)));
    CHECK(getcwd(got, 3) == NULL && errno == ERANGE);
    FAILS(EFAULT, syscall(SYS_getcwd, 8, 4096));
    /* Out and in again, by descriptors too. */
    int here = open(".", O_RDONLY | O_DIRECTORY), place = open("b", O_PATH);
    CHECK(chdir("/") == 0 && getcwd(got, 10) && strcmp(got, "/") == 0 && fchdir(here) == 0 && stands_in("a"));
    CHECK(fchdir(place) == 0 && stands_in("a/b") && close(here) == 0 && close(place) == 0);
    int root = open("/", O_RDONLY | O_DIRECTORY);
    CHECK(fchdir(root) == 0 && access("etc/passwd", F_OK) == 0 && chdir(in("a")) == 0 && stands_in("a"));
    FAILS(EBADF, fchdir(999));
    /* Children have it, and change their own. */
    pid_t pid = fork();
    if (pid == 0)
        _exit(!(stands_in("a") && chdir("b") == 0 && stands_in("a/b") && open("made", O_CREAT | O_RDWR, 0644) >= 0));
    CHECK(child_ends_with(pid, 0) && stands_in("a") && access("b/made", F_OK) == 0);
    pid = vfork();
    if (pid == 0) {
        if (chdir("b") != 0 || access("made", F_OK) != 0 || chdir("/") != 0 || chdir(dir) != 0)
            _exit(1);
        execl("/bin/sh", "sh", "-c", "test -e file && test -e a/b/made && cd a && test -e b/made", NULL);
        _exit(90);
    }
    CHECK(child_ends_with(pid, 0) && stands_in("a"));
    CHECK(system("test \"$(pwd -P)\" = \"$PWD\" || test -e b/made") == 0 && system("cd .. && test -e file") == 0);
    /* It stays while it is somebody's, also without a name. */
    CHECK(chdir("b") == 0 && unlink("made") == 0 && rmdir("../b") == 0 && getcwd(got, sizeof got) == NULL && errno == ENOENT);
    FAILS(ENOENT, open("made", O_CREAT | O_RDWR, 0644));
    CHECK(chdir("..") == 0 || errno == ENOENT);
    CHECK(chdir(dir) == 0 && stands_in(""));
    int turns = 2000;
    pthread_t thread;
    NEED(pthread_create(&thread, NULL, walker, &turns) == 0);
    for (int turn = 0; turn < 500; turn++)
        CHECK(chdir("a") == 0 && chdir("..") == 0);
    pthread_join(thread, NULL);
}

static void places(void) {
    struct stat named, opened;
    close(file_with("plain", "text"));
    NEED(symlink("plain", in("link")) == 0 && mkdir(in("sub"), 0755) == 0);
    int file = open(in("plain"), O_PATH), link = open(in("link"), O_PATH | O_NOFOLLOW), sub = open(in("sub"), O_PATH | O_DIRECTORY);
    CHECK(file >= 0 && link >= 0 && sub >= 0);
    FAILS(ENOTDIR, open(in("plain"), O_PATH | O_DIRECTORY));
    FAILS(ENOENT, open(in("none"), O_PATH));
    CHECK(stat(in("plain"), &named) == 0 && fstat(file, &opened) == 0 && named.st_ino == opened.st_ino);
    CHECK(lstat(in("link"), &named) == 0 && fstat(link, &opened) == 0 && named.st_ino == opened.st_ino && S_ISLNK(opened.st_mode));
    CHECK(readlinkat(link, "", got, sizeof got) == 5 && memcmp(got, "plain", 5) == 0);
    FAILS(EBADF, read(file, got, 1));
    FAILS(EBADF, fchmod(file, 0600));
    FAILS(EBADF, ftruncate(file, 0));
    FAILS(EBADF, flock(file, LOCK_SH));
    FAILS(EBADF, pread(file, got, 1, 0));
    FAILS(EBADF, fsetxattr(file, "user.x", "", 0, 0));
    FAILS(EBADF, lseek(file, 0, SEEK_SET));
    CHECK(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, file, 0) == MAP_FAILED && errno == EBADF);
    CHECK((fcntl(file, F_GETFL) & O_PATH) != 0 && (fcntl(sub, F_GETFD) & FD_CLOEXEC) == 0);
    int made = openat(sub, "made", O_CREAT | O_RDWR, 0644), copy = dup(sub);
    CHECK(made >= 0 && write(made, "made", 4) == 4 && faccessat(copy, "made", F_OK, 0) == 0 && unlinkat(copy, "made", 0) == 0);
    CHECK(fchownat(file, "", getuid(), -1, AT_EMPTY_PATH) == 0);
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
    int again = open(name, O_RDWR);
    CHECK(again >= 0 && read(again, got, 10) == 4);
    int next = fork();
    if (next == 0) {
        snprintf(name, sizeof name, "test -e /dev/fd/%d/../plain", sub);
        execl("/bin/sh", "sh", "-c", name, NULL);
        _exit(90);
    }
    CHECK(child_ends_with(next, 0));
}

/* What this program is when the pool has it. */
static void programs(const char *self) {
    char command[3 * PATH_MAX];
    snprintf(command, sizeof command, "cp %s %s", self, in("copied"));
    NEED(system(command) == 0 && mkdir(in("bin"), 0755) == 0);
    int program = open(in("copied"), O_RDONLY | O_CLOEXEC), place = open(in("copied"), O_PATH | O_CLOEXEC);
    int to = file_with("to", "");
    for (int way = 0; way < 4; way++) {
        pid_t pid = fork();
        if (pid == 0) {
            char *arguments[] = {"copied", "name", (char *)dir, NULL};
            dup2(to, 1);
            if (way == 0)
                execv(in("copied"), arguments);
            else if (way == 1)
                fexecve(program, arguments, environ);
            else if (way == 2)
                syscall(SYS_execveat, place, "", arguments, environ, AT_EMPTY_PATH);
            else if (chdir(in("bin")) == 0)
                execv("../copied", arguments);
            _exit(90);
        }
        CHECK(child_ends_with(pid, 0));
    }
    CHECK(holds("to", "named named named named "));
    char *arguments[] = {"copied", "name", (char *)dir, NULL};
    pid_t pid;
    CHECK(posix_spawn(&pid, in("copied"), NULL, NULL, arguments, environ) == 0 && child_ends_with(pid, 0));
    /* What is no program. */
    close(file_with("text", "echo not executable\n"));
    FAILS(EACCES, execl(in("text"), "text", NULL));
    FAILS(EACCES, execl(in("bin"), "bin", NULL));
    FAILS(ENOENT, execl(in("none"), "none", NULL));
    FAILS(ENOTDIR, execl(in("text/none"), "none", NULL));
    NEED(chmod(in("text"), 0755) == 0);
    FAILS(ENOEXEC, execl(in("text"), "text", NULL));
    close(file_with("script", "#!/none/interpreter\n"));
    NEED(chmod(in("script"), 0755) == 0);
    FAILS(ENOENT, execl(in("script"), "script", NULL));
    snprintf(command, sizeof command, "#!%s\n", in("self"));
    close(file_with("self", command));
    NEED(chmod(in("self"), 0755) == 0);
    FAILS(ELOOP, execl(in("self"), "self", NULL));
    CHECK(write(to, "!", 1) == 1);
}

/* As a program of the pool: what it is called. */
static void name(void) {
    ssize_t len = readlink("/proc/self/exe", got, sizeof got - 1);
    got[len > 0 ? len : 0] = 0;
    struct stat own, named;
    /* By its inode, if it was run by a descriptor. */
    CHECK((strcmp(got, in("copied")) == 0 || strstr(got, "/.pmfs-inode-")) && stat(got, &named) == 0 && stat("/proc/self/exe", &own) == 0 && stat(in("copied"), &named) == 0);
    CHECK(own.st_ino == named.st_ino && prctl(PR_GET_NAME, got) == 0);
    say("named ");
}

static void special(void) {
    CHECK(mkfifo(in("fifo"), 0644) == 0);
    FAILS(EOPNOTSUPP, open(in("fifo"), O_RDWR));
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int end = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%.100s", in("socket"));
    FAILS(EOPNOTSUPP, bind(end, (struct sockaddr *)&address, sizeof address));
    FAILS(EOPNOTSUPP, connect(end, (struct sockaddr *)&address, sizeof address));
    CHECK(chdir(dir) == 0);
    snprintf(address.sun_path, sizeof address.sun_path, "socket");
    FAILS(EOPNOTSUPP, bind(end, (struct sockaddr *)&address, sizeof address));
    FAILS(EOPNOTSUPP, chroot("."));
    FAILS(EOPNOTSUPP, chroot(dir));
    CHECK(chdir("/") == 0);
}

static int never(void *unused) {
    (void)unused;
    return 1;
}

static void refused(const char *stranger) {
    int fd = file_with("file", "0123456789");
    /* Descriptors without the memory, and memory without the descriptors. */
    static char stack[1 << 14];
    FAILS(EOPNOTSUPP, clone(never, stack + sizeof stack, CLONE_FILES | SIGCHLD, NULL));
    FAILS(EOPNOTSUPP, clone(never, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL));
    special();
    /* To another process. */
    int ends[2];
    NEED(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
    char control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec text = {"x", 1};
    struct msghdr message = {.msg_iov = &text, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    FAILS(EOPNOTSUPP, sendmsg(ends[0], &message, 0));
    /* To a program that can't load the library: with files, or as a script. Without
     * either it runs. */
    pid_t pid = fork();
    if (pid == 0) {
        FAILS(EOPNOTSUPP, execl(stranger, "stranger", "say", "x", NULL));
        char command[PATH_MAX + 20];
        snprintf(command, sizeof command, "#!%s\n", stranger);
        close(file_with("script", command));
        CHECK(chmod(in("script"), 0755) == 0 && close(fd) == 0);
        FAILS(EOPNOTSUPP, execl(in("script"), "script", NULL));
        CHECK(failures == 0 && chdir(dir) == 0);
        execl(stranger, "stranger", "say", "", NULL);
        _exit(90);
    }
    CHECK(child_ends_with(pid, 0));
    struct sock_filter all = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog filter = {1, &all};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    FAILS(EOPNOTSUPP, prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter));
    /* By names that libc does not ask for. */
    CHECK(raw(SYS_open, (long)in("file"), O_RDONLY, 0) == -ENOENT && raw(SYS_read, fd, (long)got, 1) == -EBADF && raw(SYS_write, fd, (long)"x", 1) == -EPERM);
    CHECK(chdir(dir) == 0 && raw(SYS_open, (long)"file", O_RDWR | O_CREAT, 0644) == -ENOENT && raw(SYS_open, (long)"../file", O_RDWR | O_CREAT, 0644) == -ENOENT);
    CHECK(raw(SYS_getcwd, (long)got, sizeof got, 0) < 0 && access("file", F_OK) == 0);
    CHECK(close(fd) == 0 && chdir("/") == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
    FAILS(ENOENT, open(in("file"), O_RDONLY));
}

/* More processes than the pool has room for: those that do not get in are told so, and
 * get in once there is room again. */
static void crowd(void) {
    enum { ALL = 200 };
    int said[2], hold[2], again[2];
    NEED(pipe(said) == 0 && pipe(hold) == 0 && pipe(again) == 0);
    for (int child = 0; child < ALL; child++)
        if (fork() == 0) {
            close(hold[1]);
            close(again[1]);
            int fd = open(in("file"), O_RDWR | O_CREAT, 0644), why = fd < 0 ? errno : 0;
            if (write(said[1], &why, sizeof why) != sizeof why || read(hold[0], got, 1) != 0)
                _exit(1);
            if (why == 0)
                _exit(0);
            if (read(again[0], got, 1) != 0)
                _exit(2);
            for (int round = 0; round < 2000 && (fd = open(in("file"), O_RDWR)) < 0 && errno == ENFILE; round++)
                usleep(5000);
            _exit(fd < 0 ? 3 : 0);
        }
    int in_pool = 0, full = 0, why;
    for (int child = 0; child < ALL && read(said[0], &why, sizeof why) == sizeof why; child++)
        why == 0 ? in_pool++ : why == ENFILE ? full++ : say("errno %d\n", why);
    CHECK(in_pool >= 8 && full >= 8 && in_pool + full == ALL);
    close(hold[1]);
    close(again[1]);
    for (int child = 0, status; child < ALL; child++)
        CHECK(wait(&status) > 0 && status == 0);
}

int main(int count, char **arguments) {
    NEED(count >= 3);
    dir = arguments[count - 1];
    if (!strcmp(arguments[1], "directories")) {
        places();
        kept_beside_a_guest();
        working_directory();
    } else if (!strcmp(arguments[1], "programs")) {
        programs(arguments[0]);
    } else if (!strcmp(arguments[1], "crowd")) {
        crowd();
    } else if (!strcmp(arguments[1], "name")) {
        name();
        return failures != 0;
    } else {
        refused(arguments[2]);
    }
    say("%s: %d failures\n", arguments[1], failures);
    return failures != 0;
}
