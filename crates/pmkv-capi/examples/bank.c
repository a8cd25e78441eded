/* A bank that survives kill -9.
 *
 *   cc bank.c -lpmkv -o bank && ./bank /dev/shm/bank
 *
 * It moves money between accounts until it is killed. Started again, it tells how many transfers
 * there were: each has happened wholly or not at all.
 */
#include <pmkv.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ACCOUNTS = 10, EACH = 1000 };

struct account {
    uint64_t balance;
    uint64_t sent, received, transfers;
};

/* The root. An object is named by its offset, and no address is stored. */
struct bank {
    uint64_t accounts[ACCOUNTS];
};

static void need(int well)
{
    if (!well) {
        fprintf(stderr, "bank: %s\n", pmheap_error());
        exit(1);
    }
}

static void make_accounts(pmheap_t *heap, uint64_t root)
{
    pmheap_tx_t *tx = pmheap_tx_begin(heap);
    struct bank *bank = pmheap_tx_edit(tx, root, 0, sizeof *bank);
    need(bank != NULL);
    for (int number = 0; number < ACCOUNTS; number++) {
        bank->accounts[number] = pmheap_tx_alloc(tx, sizeof(struct account));
        struct account *account =
            pmheap_tx_edit(tx, bank->accounts[number], 0, sizeof *account);
        need(account != NULL);
        account->balance = EACH;
    }
    need(pmheap_tx_commit(tx) == PMHEAP_OK);
}

/* Both accounts change, or neither. It is durable when this returns. */
static void transfer(pmheap_t *heap, uint64_t from, uint64_t to, uint64_t amount)
{
    const uint64_t both[] = {from, to};
    pmheap_tx_t *tx = pmheap_tx_begin(heap);
    need(pmheap_tx_lock_all(tx, both, 2) == PMHEAP_OK);
    struct account *giver = pmheap_tx_edit(tx, from, 0, sizeof *giver);
    struct account *taker = pmheap_tx_edit(tx, to, 0, sizeof *taker);
    need(giver != NULL && taker != NULL);
    if (amount > giver->balance)
        amount = giver->balance;
    giver->balance -= amount;
    giver->sent += amount;
    giver->transfers++;
    taker->balance += amount;
    taker->received += amount;
    need(pmheap_tx_commit(tx) == PMHEAP_OK);
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : "bank";
    int is_there = access(path, F_OK) == 0;
    pmheap_t *heap = is_there ? pmheap_open(path, NULL) : pmheap_create(path, NULL);
    need(heap != NULL);

    /* The root is of this type for good: another program can't take it for something else. */
    const struct pmheap_field fields[] = {{"accounts", "P", 0, 0, ACCOUNTS}};
    uint64_t type = pmheap_type_struct(fields, 1, sizeof(struct bank));
    uint64_t root = pmheap_root(heap, "bank", sizeof(struct bank), type);
    need(root != 0);
    struct bank bank;
    need(pmheap_read(heap, root, 0, &bank, sizeof bank) == PMHEAP_OK);
    if (bank.accounts[0] == 0) {
        make_accounts(heap, root);
        need(pmheap_read(heap, root, 0, &bank, sizeof bank) == PMHEAP_OK);
    }

    uint64_t money = 0, transfers = 0, sent = 0, received = 0;
    for (int number = 0; number < ACCOUNTS; number++) {
        struct account one;
        need(pmheap_read(heap, bank.accounts[number], 0, &one, sizeof one) == PMHEAP_OK);
        money += one.balance;
        sent += one.sent;
        received += one.received;
        transfers += one.transfers;
    }
    if (money != ACCOUNTS * EACH || sent != received)
        return 1;
    printf("%llu transfers so far, and every one is whole\n", (unsigned long long)transfers);
    fflush(stdout);

    for (uint64_t random = (uint64_t)getpid();;) {
        random = random * 6364136223846793005u + 1;
        uint64_t from = (random >> 33) % ACCOUNTS, to = (random >> 43) % ACCOUNTS;
        if (from != to)
            transfer(heap, bank.accounts[from], bank.accounts[to], random >> 57);
    }
}
