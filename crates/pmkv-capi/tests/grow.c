/* A heap that was made at 64 MiB takes more than that, untold, from two processes at once:
 *
 *   grow HEAP MIB [MAX]   fills it with MIB of objects, each of which has its number at both ends;
 *                         MAX: MiB to which it may grow, which a device has to be told
 *
 * Each process makes a chain from the root on. Afterwards both chains are whole, by another opening,
 * and every byte is accounted for.
 */
#include "told.h"
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 2 };

struct head {
    uint64_t next, number, size;
};

/* For each process: its newest object, and how many bytes of objects it has made. */
struct root {
    uint64_t newest[PROCESSES], count[PROCESSES], bytes[PROCESSES];
};

static const char *path;
static uint64_t max;

static pmheap_t *opened(int is_new)
{
    struct pmheap_options options;
    memset(&options, 0, sizeof options);
    options.size = 64 << 20;
    options.max = max;
    pmheap_t *heap = is_new ? pmheap_create(path, &options) : pmheap_open(path, &options);
    IS(heap != NULL);
    return heap;
}

static uint64_t root_of(pmheap_t *heap)
{
    uint64_t type = pmheap_type_register("chains", sizeof(struct root), NULL, 0);
    uint64_t root = pmheap_root(heap, "chains", sizeof(struct root), type);
    IS(root != 0);
    return root;
}

static void fill(int process, uint64_t bytes)
{
    static const uint64_t sizes[] = {1 << 18, 100, 5000, 70000, 1 << 20, 8192, 64, 300000};
    pmheap_t *heap = opened(0);
    uint64_t root = root_of(heap);
    for (uint64_t made = 0, count = 0; made < bytes; count++) {
        pmheap_tx_t *tx = pmheap_tx_begin(heap);
        struct head head = {0, count + 1, sizes[count % 8]};
        uint64_t place[] = {8 * (uint64_t)process, 16 + 8 * (uint64_t)process,
                            32 + 8 * (uint64_t)process};
        uint64_t object = pmheap_tx_alloc(tx, head.size);
        IS(object != 0);
        made += head.size;
        OK(pmheap_tx_read(tx, root, place[0], &head.next, 8));
        OK(pmheap_tx_write(tx, object, 0, &head, sizeof head));
        OK(pmheap_tx_write(tx, object, head.size - 8, &head.number, 8));
        OK(pmheap_tx_write(tx, root, place[0], &object, 8));
        OK(pmheap_tx_write(tx, root, place[1], &head.number, 8));
        OK(pmheap_tx_write(tx, root, place[2], &made, 8));
        OK(pmheap_tx_commit(tx));
    }
    OK(pmheap_close(heap));
}

int main(int argc, char **argv)
{
    IS(argc == 3 || argc == 4);
    path = argv[1];
    uint64_t mib = strtoull(argv[2], NULL, 10);
    max = argc == 4 ? strtoull(argv[3], NULL, 10) << 20 : 0;
    /* Somebody has it all the time: what the two add has to be found. */
    pmheap_t *heap = opened(1);
    uint64_t root = root_of(heap), objects = 0, bytes = 0;
    pid_t children[PROCESSES];
    for (int process = 0; process < PROCESSES; process++) {
        IS((children[process] = fork()) >= 0);
        if (children[process] == 0) {
            fill(process, (mib << 20) / PROCESSES);
            _exit(0);
        }
    }
    for (int process = 0; process < PROCESSES; process++) {
        int status = -1;
        IS(waitpid(children[process], &status, 0) > 0 && status == 0);
    }
    for (int round = 0; round < 2; round++) {
        struct root ends;
        OK(pmheap_read(heap, root, 0, &ends, sizeof ends));
        objects = bytes = 0;
        for (int process = 0; process < PROCESSES; process++) {
            uint64_t object = ends.newest[process], number = ends.count[process], last;
            struct head head;
            for (; object != 0; object = head.next, number--) {
                OK(pmheap_read(heap, object, 0, &head, sizeof head));
                OK(pmheap_read(heap, object, head.size - 8, &last, 8));
                IS(head.number == number && last == number);
                objects++;
            }
            IS(number == 0);
            bytes += ends.bytes[process];
        }
        if (round == 0) {
            OK(pmheap_close(heap));
            heap = opened(0);
            IS(root_of(heap) == root);
        }
    }
    struct pmheap_census census;
    struct pmheap_stat stat;
    OK(pmheap_check(heap, &census));
    OK(pmheap_stat(heap, &stat));
    /* The root, and the entry with its name. */
    IS(census.objects == objects + 2 && census.object_bytes >= bytes);
    IS(census.object_bytes + census.spare_bytes + census.free_bytes + census.own_bytes ==
       stat.bytes);
    OK(pmheap_close(heap));
    printf("%llu objects of %llu MiB in %llu MiB, grown %u times, on a %s, by %d processes of user "
           "%d\n",
           (unsigned long long)objects, (unsigned long long)(bytes >> 20),
           (unsigned long long)(stat.bytes >> 20), stat.spans - 1, stat.medium, PROCESSES,
           (int)getuid());
    return bytes < mib << 20;
}
