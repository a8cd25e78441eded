/* Exceptions of C++ that pass calls: through libc's frames, and beside destructors that
 * make calls of their own. */
#include "check.h"
#include <ftw.h>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

struct Guard {
    std::string name;
    int fd;
    explicit Guard(const std::string &made) : name(made), fd(open(in(made.c_str()), O_RDWR | O_CREAT, 0644)) {}
    ~Guard() {
        CHECK(write(fd, "ended", 5) == 5);
        close(fd);
        rename(in(name.c_str()), in((name + ".done").c_str()));
    }
};

static int met;
static int visit(const char *path, const struct stat *, int, struct FTW *) {
    met++;
    if (strstr(path, "stop"))
        throw std::runtime_error(path);
    return 0;
}

static int compare(const void *, const void *) {
    char byte;
    int fd = open(in("one"), O_RDONLY);
    ssize_t len = read(fd, &byte, 1);
    close(fd);
    if (len == 1)
        throw 7;
    return 0;
}

static void thrown(int round) {
    Guard guard("guard" + std::to_string(round));
    if (read(guard.fd, nullptr, 0) == 0)
        throw std::out_of_range("thrown");
}

int main(int count, char **arguments) {
    NEED(count == 3);
    dir = arguments[2];
    for (int round = 0; round < 100; round++) {
        try {
            thrown(round);
            CHECK(!"thrown");
        } catch (const std::out_of_range &error) {
            CHECK(std::string(error.what()) == "thrown");
        }
        CHECK(holds(("guard" + std::to_string(round) + ".done").c_str(), "ended"));
    }
    file_with("one", "1");
    NEED(mkdir(in("tree"), 0755) == 0 && mkdir(in("tree/a"), 0755) == 0);
    file_with("tree/a/stop", "x");
    bool caught = false;
    try {
        nftw(in("tree"), visit, 8, FTW_PHYS);
    } catch (const std::runtime_error &) {
        caught = true;
    }
    CHECK(caught && met == 3);
    int numbers[2] = {2, 1};
    try {
        qsort(numbers, 2, sizeof numbers[0], compare);
        CHECK(!"sorted");
    } catch (int number) {
        CHECK(number == 7);
    }
    /* Streams, in threads. */
    std::vector<std::thread> threads;
    for (int at = 0; at < 4; at++)
        threads.emplace_back([at] {
            for (int round = 0; round < 50; round++) {
                std::string name = in(("s" + std::to_string(at)).c_str());
                std::ofstream(name) << "line " << round << "\nmore " << std::string(5000, 'x') << std::endl;
                std::ifstream stream(name);
                stream.exceptions(std::ios::failbit);
                std::string line;
                try {
                    for (;;)
                        std::getline(stream, line);
                } catch (const std::ios::failure &) {
                }
                std::stringstream all;
                all << std::ifstream(name).rdbuf();
                CHECK(all.str().size() > 5010);
            }
        });
    for (auto &thread : threads)
        thread.join();
    say("exceptions: %d failures\n", failures);
    return failures != 0;
}
