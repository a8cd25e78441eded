/* Two processes and more on one heap, killed at random in the middle of transactions: the sum of all
 * accounts stays, what was acknowledged is there, and no object is lost. */
#include "told.h"
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ACCOUNTS = 16, CHILDREN = 3, ROUNDS = 12, EACH = 1000 };

/* Every account has an object, whose number it has too. */
struct account {
    uint64_t balance, object, number;
};

static struct bank {
    struct account accounts[ACCOUNTS];
    uint64_t counts[CHILDREN];
} bank;

static uint64_t root_of(pmheap_t *heap)
{
    uint64_t type = pmheap_type_register("bank", sizeof bank, NULL, 0);
    uint64_t root = pmheap_root(heap, "bank", sizeof bank, type);
    IS(root != 0);
    return root;
}

static uint64_t place_of(uint64_t account) { return account * sizeof(struct account); }

static void work(const char *path, int child, int acknowledged)
{
    pmheap_t *heap = pmheap_open(path, NULL);
    IS(heap != NULL);
    uint64_t root = root_of(heap), random = (uint64_t)getpid() << 20, number = 0;
    OK(pmheap_read(heap, root, 0, &bank, sizeof bank));
    for (uint64_t done = bank.counts[child] + 1;; done++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        uint64_t from = (random >> 33) % ACCOUNTS, to = (random >> 43) % ACCOUNTS;
        if (from == to)
            to = (to + 1) % ACCOUNTS;
        const uint64_t locks[] = {root + place_of(from), root + place_of(to)};
        pmheap_tx_t *tx = pmheap_tx_begin(heap);
        enum pmheap_code code = pmheap_tx_lock_all(tx, locks, 2);
        IS(code == PMHEAP_OK);
        struct account *giver =
            (struct account *)pmheap_tx_edit(tx, root, place_of(from), sizeof *giver);
        struct account *taker =
            (struct account *)pmheap_tx_edit(tx, root, place_of(to), sizeof *taker);
        IS(giver != NULL && taker != NULL);
        uint64_t amount = giver->balance < 7 ? giver->balance : 7;
        giver->balance -= amount;
        taker->balance += amount;
        if (giver->object != 0)
            OK(pmheap_tx_free(tx, giver->object));
        giver->object = pmheap_tx_alloc(tx, 100 + random % 400);
        giver->number = number = random;
        IS(giver->object != 0);
        OK(pmheap_tx_write(tx, giver->object, 0, &number, sizeof number));
        OK(pmheap_tx_write(tx, root, sizeof bank.accounts + 8 * (size_t)child, &done, 8));
        OK(pmheap_tx_commit(tx));
        IS(write(acknowledged, &done, sizeof done) == sizeof done);
    }
}

int main(int argc, char **argv)
{
    uint64_t said[CHILDREN] = {0}, objects;
    struct pmheap_census census;
    IS(argc == 2);
    pmheap_t *heap = pmheap_create(argv[1], NULL);
    IS(heap != NULL);
    uint64_t root = root_of(heap);
    pmheap_tx_t *tx = pmheap_tx_begin(heap);
    struct bank *made = (struct bank *)pmheap_tx_edit(tx, root, 0, sizeof *made);
    IS(made != NULL);
    for (int at = 0; at < ACCOUNTS; at++)
        made->accounts[at].balance = EACH;
    OK(pmheap_tx_commit(tx));
    OK(pmheap_check(heap, &census));
    objects = census.objects;
    for (int round = 0; round < ROUNDS; round++) {
        pid_t pids[CHILDREN];
        int pipes[CHILDREN][2];
        /* In every second round somebody has the heap all the time. */
        if (round % 2 == 0) {
            OK(pmheap_close(heap));
            heap = NULL;
        }
        for (int child = 0; child < CHILDREN; child++) {
            IS(pipe(pipes[child]) == 0 && (pids[child] = fork()) >= 0);
            if (pids[child] == 0)
                work(argv[1], child, pipes[child][1]);
            close(pipes[child][1]);
        }
        for (int child = 0; child < CHILDREN; child++) {
            uint64_t done[512];
            ssize_t got;
            int status;
            usleep(4000 + 3001 * (unsigned)round);
            IS(kill(pids[child], SIGKILL) == 0 && waitpid(pids[child], &status, 0) > 0);
            IS(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
            while ((got = read(pipes[child][0], done, sizeof done)) > 0)
                said[child] = done[got / 8 - 1];
            close(pipes[child][0]);
        }
        if (heap == NULL)
            heap = pmheap_open(argv[1], NULL);
        IS(heap != NULL && root_of(heap) == root);
        /* What the dead held is looked for by who meets it. */
        tx = pmheap_tx_begin(heap);
        for (int at = 0; at < ACCOUNTS; at++)
            OK(pmheap_tx_lock(tx, root + place_of((uint64_t)at)));
        OK(pmheap_tx_abort(tx));
        OK(pmheap_read(heap, root, 0, &bank, sizeof bank));
        uint64_t money = 0, held = 0;
        for (int at = 0; at < ACCOUNTS; at++) {
            const struct account *account = &bank.accounts[at];
            uint64_t number;
            money += account->balance;
            if (account->object == 0)
                continue;
            held++;
            OK(pmheap_read(heap, account->object, 0, &number, sizeof number));
            IS(number == account->number);
        }
        IS(money == ACCOUNTS * EACH);
        for (int child = 0; child < CHILDREN; child++)
            IS(bank.counts[child] == said[child] || bank.counts[child] == said[child] + 1);
        for (int child = 0; child < CHILDREN; child++)
            said[child] = bank.counts[child];
        OK(pmheap_check(heap, &census));
        IS(census.objects == objects + held);
    }
    OK(pmheap_close(heap));
    printf("%llu transactions, %d kills\n",
           (unsigned long long)(said[0] + said[1] + said[2]), ROUNDS * CHILDREN);
    return said[0] == 0 || said[1] == 0 || said[2] == 0;
}
