/*
 * libpmkv: a persistent heap, and key-value engines in it, from C.
 *
 * A heap is one file, mapped, that holds objects. They outlive the process, and power if the medium
 * does. An object is named by its offset in the heap, a uint64_t; 0 is no object. A program changes
 * objects in transactions. Each one happens wholly or not at all, and is durable when its commit
 * returns. docs/HEAP.md tells the rest.
 *
 * An engine is a named part of a heap that keeps values of any bytes by keys of any bytes. A put is
 * durable when it returns. docs/KV.md tells the rest.
 *
 * A function answers with a code, or with a pointer or an offset, which is NULL or 0 if it failed.
 * pmheap_last_code() has the code of this thread's last call, and pmheap_error() the cause in words.
 * Nothing jumps out of a call, and no panic gets out of the library.
 *
 * Handles are numbers that are looked up, so that a heap or an engine that was closed, and a
 * transaction that has ended, are told. Pointers to memory have to be what each function says; NULL is told.
 *
 * Any number of threads and processes use a heap at once. A transaction belongs to the thread that
 * began it. A thread that ends undoes its transactions. After fork the child's copies of heaps and
 * engines are dead: the child opens the heap again.
 */
#ifndef PMKV_H
#define PMKV_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A heap that this process has open. */
typedef struct pmheap pmheap_t;
/* A transaction of this thread. */
typedef struct pmheap_tx pmheap_tx_t;
/* A key-value engine of a heap, which this process has open. */
typedef struct pmkv pmkv_t;
/* A session of a reader. */
typedef struct pmkv_reader pmkv_reader_t;

/* An engine as it was at one instant. */
typedef struct pmkv_snapshot pmkv_snapshot_t;

/* Causes. Numbers keep their meaning; later versions may add some. */
enum pmheap_code {
    PMHEAP_OK = 0,

    /* A pointer is NULL. */
    PMHEAP_E_NULL = 1,
    /* No heap, transaction or engine: there never was one, or it was closed, or has ended. */
    PMHEAP_E_HANDLE = 2,
    /* The transaction is another thread's. */
    PMHEAP_E_THREAD = 3,
    /* A value that means nothing: see pmheap_error(). */
    PMHEAP_E_ARGUMENT = 4,
    /* pmheap_close: transactions of the heap go on, or engines are open. pmkv_close: pmkv_each. */
    PMHEAP_E_IN_USE = 5,
    /* pmheap_tx_edit: an edited range overlaps this one and does not hold all of it. */
    PMHEAP_E_OVERLAP = 6,
    /* This thread has a transaction of the heap: see pmheap_tx_nest. */
    PMHEAP_E_NESTED = 7,
    /* The holder of a lock waits for this transaction: abort it. */
    PMHEAP_E_DEADLOCK = 8,
    /* The heap was opened before fork. */
    PMHEAP_E_FORKED = 9,
    /* The process has 256 heaps open. */
    PMHEAP_E_HEAPS = 10,
    /* The process has 256 engines open. */
    PMHEAP_E_ENGINES = 11,

    /* No object is there. */
    PMHEAP_E_NO_OBJECT = 20,
    /* Bytes that are not all in the object. */
    PMHEAP_E_RANGE = 21,
    /* An object of no bytes, or of more than the heap can have. */
    PMHEAP_E_SIZE = 22,
    /* The object has fewer bytes than its type. */
    PMHEAP_E_CLASS = 23,
    /* The root is of another type. */
    PMHEAP_E_TYPE = 24,
    /* A root's name of no bytes, or of more than 255. */
    PMHEAP_E_NAME = 25,
    /* No room, and none can be had. Nothing has changed. */
    PMHEAP_E_FULL = 26,

    /* The file holds something else. */
    PMHEAP_E_FOREIGN = 30,
    /* A later version of the library made the heap. */
    PMHEAP_E_VERSION = 31,
    /* Too few bytes for a heap. */
    PMHEAP_E_TOO_SMALL = 32,
    /* The heap is damaged. */
    PMHEAP_E_DAMAGED = 33,
    /* The heap was opened to be read. */
    PMHEAP_E_READ_ONLY = 34,
    /* Another process attaches or leaves, for too long. */
    PMHEAP_E_BUSY = 35,
    /* As many processes have the heap as can. */
    PMHEAP_E_PROCESSES = 36,
    /* Those who have the heap can't share it with this process, or it is a copy. */
    PMHEAP_E_APART = 37,
    /* Opened to be read: its last user was killed, and it has to be opened once to write. */
    PMHEAP_E_RECOVERY = 38,
    /* Opened to be read: it has become shorter since. */
    PMHEAP_E_SHORTER = 39,

    /* The path or the rights to it are wrong. */
    PMHEAP_E_OPEN = 40,
    /* A file is there already. */
    PMHEAP_E_EXISTS = 41,
    /* The medium, or the machine's memory, has no room. */
    PMHEAP_E_SPACE = 42,
    /* Something else about the medium. */
    PMHEAP_E_MEDIUM = 43,
    /* The medium failed. Whether the call has happened is not known. */
    PMHEAP_E_LOST = 44,
    /* An earlier call broke off in a commit: open the heap again. */
    PMHEAP_E_BROKEN = 45,

    /* A bug of the library; what it was in the middle of has not happened. Please report it. */
    PMHEAP_E_BUG = 50,

    /* The key is not there; pmkv_open: the engine is not. */
    PMHEAP_E_NO_KEY = 60,
    /* pmkv_put_if: the key is not as expected. Nothing has changed. */
    PMHEAP_E_EXPECTED = 61,
    /* pmkv_get, pmheap_map_get: the buffer has fewer bytes than the value. */
    PMHEAP_E_SHORT = 62,
    /* A key of more than 64 KiB, or a value of more than 4 GiB. */
    PMHEAP_E_TOO_LARGE = 63,
    /* A key's record is damaged. Others are not touched by that. */
    PMHEAP_E_CORRUPT = 64,
    /* The engine is of another kind, or of a later version. */
    PMHEAP_E_SHAPE = 65,
    /* The index has no room for this key. */
    PMHEAP_E_CROWDED = 66,
    /* A callback has answered something else than 0. */
    PMHEAP_E_STOPPED = 67,
    /* The reader or snapshot has lasted longer than it may, and was ended. */
    PMHEAP_E_ENDED = 68
};

/* How a heap is made and opened. All zeros, and NULL for the whole: the defaults. */
struct pmheap_options {
    /* pmheap_create: bytes; 0: 64 MiB. */
    uint64_t size;
    /* Bytes to which it may grow; 0: 1 TiB in a file, and not at all on a device or in memory. */
    uint64_t max;
    /* pmheap_create: transactions that may go on at once; 0: by the size. */
    uint32_t lanes;
    /* pmheap_create: processes that may have it at once, one less than these; 0: by the size. */
    uint32_t processes;
    /* pmheap_open, not 0: it is only read. The file may be one that this user can't write. */
    uint32_t read_only;
    /* pmheap_create, not 0: in memory of this process, with NULL for a path; nothing lasts. */
    uint32_t is_private;
    /* Not 0: open a heap that was in use by another name, whose last user is known to be gone. */
    uint32_t adopt;
    /* Milliseconds for which a process that attaches or leaves is waited for before the answer is
     * PMHEAP_E_BUSY; 0: 60 s, and 10 s of a heap that is only read. It ends no other wait. */
    uint32_t wait_ms;
    /* Have to be 0. */
    uint32_t reserved[6];
};

/* How full a heap is. */
struct pmheap_stat {
    /* Bytes of the heap. */
    uint64_t bytes;
    /* Bytes in chunks that are free. */
    uint64_t free_bytes;
    /* The largest object that fits without growth, bytes. */
    uint64_t largest_free_bytes;
    /* Transactions that can go on at once. */
    uint32_t lanes;
    /* How often it was made or has grown. */
    uint32_t spans;
    /* Not 0: what is durable survives power loss, and not only the death of processes. */
    uint32_t survives_power_loss;
    uint32_t reserved[7];
    /* The medium, in words. */
    char medium[32];
};

/* The result of a look at everything, bytes but for the first. */
struct pmheap_census {
    uint64_t objects;
    /* Each rounded up to its class. */
    uint64_t object_bytes;
    /* In chunks of objects and not in objects. */
    uint64_t spare_bytes;
    uint64_t free_bytes;
    /* Of the heap's own parts. */
    uint64_t own_bytes;
    uint64_t reserved[4];
};

/* The code of this thread's last call. */
enum pmheap_code pmheap_last_code(void);
/* Its cause in words, with a way out. Good until the thread's next call. */
const char *pmheap_error(void);
/* What a code means, for good; of a number that is none, "no such code". */
const char *pmkv_strerror(int code);

/* Makes a heap in a file that is not there yet, or on a DAX device, and opens it. */
pmheap_t *pmheap_create(const char *path, const struct pmheap_options *options);
/* Opens a heap, which others may have. What had committed is there, and nothing else. */
pmheap_t *pmheap_open(const char *path, const struct pmheap_options *options);
/* Leaves it. The handle is gone then, whatever the answer is but PMHEAP_E_IN_USE. A process that
 * ends without it is like one that was killed: nothing is lost, and the next opener looks. */
enum pmheap_code pmheap_close(pmheap_t *heap);
enum pmheap_code pmheap_stat(pmheap_t *heap, struct pmheap_stat *into);
/* Gives free runs of 2 MiB back to the file system, as holes of the heap's file, and tells their
 * bytes: 0 where the medium has no holes. Others may have the heap. A hole gets space again when an
 * object needs it. */
enum pmheap_code pmheap_give_back(pmheap_t *heap, uint64_t *bytes);
/* Looks at every chunk. No transaction may go on meanwhile. */
enum pmheap_code pmheap_check(pmheap_t *heap, struct pmheap_census *into);

/* Reading, without a lock: as it was between two transactions. */

/* Copies bytes of an object from `start` on. */
enum pmheap_code pmheap_read(pmheap_t *heap, uint64_t object, uint64_t start, void *into,
                             size_t size);
/* Bytes of an object, at least those that were asked for; 0: failed. */
uint64_t pmheap_size_of(pmheap_t *heap, uint64_t object);

/* Roots: the objects by which a program finds all others. */

/* The root of this name; made, of zeros, if it is missing. It is of one type for good. */
uint64_t pmheap_root(pmheap_t *heap, const char *name, uint64_t size, uint64_t type);
/* The one object without a name that pmheap_tx_set_root has named; 0: none was, or failed. */
uint64_t pmheap_root_object(pmheap_t *heap);

/* Types. A fingerprint stands for a type; the heap keeps those of its roots. */

/* A field of a struct. */
struct pmheap_field {
    const char *name;
    /* u8 to u128, i8 to i128, f32, f64; P: an object's offset; PStr, PString, PLog, PBytes: pmlib's;
     * PMap, PTree: those of bytes, see pmheap_map; PVec, PQueue: see pmheap_seq; NULL: `of` says it. */
    const char *type;
    /* A fingerprint, where there is no `type`. */
    uint64_t of;
    /* Its place, offsetof(). */
    uint64_t offset;
    /* Elements of an array; 0: it is none. */
    uint64_t count;
};
/* The fingerprint that Rust's #[derive(PmSafe)] gives to a struct with these fields, so that
 * programs in both languages share it; 0: failed. Fields stand in the order of the struct, and
 * leave no gap. Integers are names of Rust's: u64 is a uint64_t. */
uint64_t pmheap_type_struct(const struct pmheap_field *fields, size_t count, uint64_t size);
/* A fingerprint of a name, a size and the places of offsets of objects, rising; 0: failed. It is
 * none of Rust's, because the names and types of fields are not in it. */
uint64_t pmheap_type_register(const char *name, uint64_t size, const uint64_t *pointer_offsets,
                              size_t count);

/* Transactions. */

/* Begins one; a thread has one a heap. */
pmheap_tx_t *pmheap_tx_begin(pmheap_t *heap);
/* Begins a part that can be aborted by itself, in the innermost that is open. */
enum pmheap_code pmheap_tx_nest(pmheap_tx_t *tx);
/* Ends the innermost open part, which happens with the rest; if none is open, the transaction: all
 * of it is durable then. After an error nothing has happened. The transaction has ended either way. */
enum pmheap_code pmheap_tx_commit(pmheap_tx_t *tx);
/* Ends the innermost open part, or the transaction. Nothing of it has happened. */
enum pmheap_code pmheap_tx_abort(pmheap_tx_t *tx);

/* Locks an object against other transactions that lock it, to the transaction's end. */
enum pmheap_code pmheap_tx_lock(pmheap_tx_t *tx, uint64_t object);
/* Locks several, in an order in which no circle closes among those who do so. */
enum pmheap_code pmheap_tx_lock_all(pmheap_tx_t *tx, const uint64_t *objects, size_t count);
/* Locks one if nobody has it; *locked: whether it is locked now. */
enum pmheap_code pmheap_tx_try_lock(pmheap_tx_t *tx, uint64_t object, int *locked);

/* Makes an object of zeros; its offset. */
uint64_t pmheap_tx_alloc(pmheap_tx_t *tx, uint64_t size);
enum pmheap_code pmheap_tx_free(pmheap_tx_t *tx, uint64_t object);
/* A private copy of bytes of an object, to be changed; others see it once it is committed. It stays
 * where it is until the part or the transaction in which it was asked for is aborted, or the
 * transaction ends. It is aligned as the range is in the heap, to 16 bytes at most; objects begin
 * at multiples of 16. A range within one that was asked for before is that copy. */
void *pmheap_tx_edit(pmheap_tx_t *tx, uint64_t object, uint64_t start, uint64_t size);
/* Writes over bytes, without reading what was there. */
enum pmheap_code pmheap_tx_write(pmheap_tx_t *tx, uint64_t object, uint64_t start,
                                 const void *from, size_t size);
/* Copies bytes, with the transaction's changes. */
enum pmheap_code pmheap_tx_read(pmheap_tx_t *tx, uint64_t object, uint64_t start, void *into,
                                size_t size);
uint64_t pmheap_tx_size_of(pmheap_tx_t *tx, uint64_t object);
/* Has pmheap_root_object answer this; 0: none. */
enum pmheap_code pmheap_tx_set_root(pmheap_tx_t *tx, uint64_t object);
/* pmheap_root in a transaction. */
uint64_t pmheap_tx_root(pmheap_tx_t *tx, const char *name, uint64_t size, uint64_t type);

/* Key-value engines. Keys have 0 to 65,536 bytes, values 0 bytes to 4 GiB, each with a pointer and
 * a size; the pointer may be NULL if the size is 0. A thread that has a transaction of the heap can
 * only read: PMHEAP_E_NESTED. */

enum pmkv_kind {
    /* Keys in no order. */
    PMKV_HASH = 0,
    /* Keys in the order of their bytes. */
    PMKV_TREE = 1
};

/* How an engine is opened. All zeros, and NULL for the whole: the defaults. */
struct pmkv_options {
    /* enum pmkv_kind. */
    uint32_t kind;
    /* Not 0: one that is missing is not made, and the answer is PMHEAP_E_NO_KEY. */
    uint32_t must_exist;
    /* Have to be 0. */
    uint32_t reserved[6];
};

/* How full an engine is. */
struct pmkv_stats {
    uint64_t keys;
    /* Index chunks, of 64 KiB, and the slots that they have. */
    uint64_t index_chunks;
    uint64_t slots;
    /* Runs of chunks that records are in, and their bytes. */
    uint64_t record_runs;
    uint64_t record_bytes;
    uint64_t reserved[3];
};

/* The state of a key on which pmkv_put_if depends. */
enum pmkv_expect {
    PMKV_MISSING = 0,
    PMKV_PRESENT = 1,
    /* It has this value. */
    PMKV_VALUE = 2
};

/* The kinds of changes. */
enum pmkv_change_kind {
    PMKV_PUT = 0,
    /* The key may be missing. */
    PMKV_DELETE = 1
};

/* A change of a batch. */
struct pmkv_change {
    /* enum pmkv_change_kind. */
    uint32_t kind;
    /* Has to be 0. */
    uint32_t reserved;
    const void *key;
    size_t key_size;
    /* NULL and 0 for PMKV_DELETE. */
    const void *value;
    size_t value_size;
    /* The moment from which on the key is missing, milliseconds since 1970; 0: never. */
    uint64_t expires;
};

/* Callbacks. They get the program's own argument first. The bytes are theirs until they return,
 * which they have to: not by longjmp or an exception. 0 goes on; anything else ends the call, with
 * PMHEAP_E_STOPPED. They may call every function. */
typedef int (*pmkv_value_cb)(void *argument, const void *value, size_t size);
typedef int (*pmkv_entry_cb)(void *argument, const void *key, size_t key_size, const void *value,
                             size_t value_size);

/* The engine of this name, of 1 to 255 bytes; made, if it is missing. Its heap stays open. */
pmkv_t *pmkv_open(pmheap_t *heap, const char *name, const struct pmkv_options *options);
/* Leaves it. */
enum pmheap_code pmkv_close(pmkv_t *kv);

/* Copies a value into a buffer of `size` bytes. *value_size: bytes of the value, also if there are
 * more than that; nothing is copied then. `value_size` may be NULL. */
enum pmheap_code pmkv_get(pmkv_t *kv, const void *key, size_t key_size, void *into, size_t size,
                          size_t *value_size);
/* Shows a value to a callback. */
enum pmheap_code pmkv_get_with(pmkv_t *kv, const void *key, size_t key_size, pmkv_value_cb callback,
                               void *argument);
/* Has a key have this value. It is durable when this returns. */
enum pmheap_code pmkv_put(pmkv_t *kv, const void *key, size_t key_size, const void *value,
                          size_t value_size);
/* The same, if the key is as expected. `old` and `old_size` count for PMKV_VALUE alone. */
enum pmheap_code pmkv_put_if(pmkv_t *kv, const void *key, size_t key_size, int expected,
                             const void *old, size_t old_size, const void *value,
                             size_t value_size);
/* Has a key have this value for so many milliseconds; then it is missing. pmkv_put of it has it
 * stay. Durable when this returns. */
enum pmheap_code pmkv_put_ttl(pmkv_t *kv, const void *key, size_t key_size, const void *value,
                              size_t value_size, uint64_t ttl_ms);
/* When a key expires. *expires: milliseconds since 1970; 0: never. */
enum pmheap_code pmkv_expiry(pmkv_t *kv, const void *key, size_t key_size, uint64_t *expires);
/* Takes keys away that have expired, not as one change, and gives their room to others. *count: how
 * many they were; `count` may be NULL. */
enum pmheap_code pmkv_purge_expired(pmkv_t *kv, uint64_t *count);
/* Makes up to 65,535 changes, all of them or none, whatever ends the process or its power. They are
 * durable when this returns. The last one of several changes of one key counts. A reader beside it
 * may see some of them before others. */
enum pmheap_code pmkv_batch(pmkv_t *kv, const struct pmkv_change *changes, size_t count);
/* Takes a key away. That is durable when this returns. */
enum pmheap_code pmkv_delete(pmkv_t *kv, const void *key, size_t key_size);
/* Shows all keys and values, those of a tree in order. A key that is there throughout comes once,
 * and none comes twice. Keys whose record is damaged are left out; the answer is PMHEAP_E_CORRUPT
 * then, behind all others. */
enum pmheap_code pmkv_each(pmkv_t *kv, pmkv_entry_cb callback, void *argument);
/* The same, of keys from `from` on and before `to`; `to` of NULL: to the end. A hash looks at all
 * of its keys for it. */
enum pmheap_code pmkv_each_between(pmkv_t *kv, const void *from, size_t from_size, const void *to,
                                   size_t to_size, pmkv_entry_cb callback, void *argument);
/* Takes all keys away, not as one change. *count: how many they were; `count` may be NULL. */
enum pmheap_code pmkv_clear(pmkv_t *kv, uint64_t *count);
/* How many keys there are, by a look at the whole index. */
enum pmheap_code pmkv_count(pmkv_t *kv, uint64_t *count);
enum pmheap_code pmkv_stats(pmkv_t *kv, struct pmkv_stats *into);

/* Sessions of readers: values where they are, without a copy. While a session is open, no room of
 * the heap is used again that is freed, so that its values stay as they were, whatever others do.
 * After so many milliseconds any process that wants room may end it; UINT64_MAX: none may. A session
 * ends with its process. It is no snapshot. Its engine stays open until pmkv_reader_close. */
pmkv_reader_t *pmkv_reader_open(pmkv_t *kv, uint64_t milliseconds);
/* Ends it: no value of it may be read any more. */
enum pmheap_code pmkv_reader_close(pmkv_reader_t *reader);
/* Where a value is, and its bytes; its check is verified. They may be read by threads that have
 * called the library before, and are to be believed only if pmkv_reader_check answers PMHEAP_OK
 * afterwards. Nobody may write there, and no child of a fork may read there. */
enum pmheap_code pmkv_reader_get(pmkv_reader_t *reader, const void *key, size_t key_size,
                                 const void **value, size_t *value_size);
/* PMHEAP_OK: it is open still, and all that was read of it is as it was. PMHEAP_E_ENDED: it has
 * lasted longer than it may, and was ended. */
enum pmheap_code pmkv_reader_check(pmkv_reader_t *reader);

/* Snapshots: an engine as it is at one instant, whatever is put and deleted later. Writers wait while
 * 8 bytes a key are copied; no room of the heap is used again that is freed from then on. After so
 * many milliseconds any process that wants room may end it (PMHEAP_E_ENDED); UINT64_MAX: none may. A
 * snapshot ends with its process. Its engine stays open until pmkv_snapshot_close. */
pmkv_snapshot_t *pmkv_snapshot_open(pmkv_t *kv, uint64_t milliseconds);
/* The same of several engines of a heap, all of one instant; `snapshots` has room for `count`. They
 * hold room until the last of them is closed. PMHEAP_E_ARGUMENT: two engines are of different heaps,
 * or are the same. After an error none is open. */
enum pmheap_code pmkv_snapshots_open(pmkv_t *const *kvs, size_t count, uint64_t milliseconds,
                                     pmkv_snapshot_t **snapshots);
enum pmheap_code pmkv_snapshot_close(pmkv_snapshot_t *snapshot);
/* As pmkv_get, pmkv_each, pmkv_each_between and pmkv_count are on the engine. */
enum pmheap_code pmkv_snapshot_get(pmkv_snapshot_t *snapshot, const void *key, size_t key_size,
                                   void *into, size_t size, size_t *value_size);
enum pmheap_code pmkv_snapshot_each(pmkv_snapshot_t *snapshot, pmkv_entry_cb callback,
                                    void *argument);
enum pmheap_code pmkv_snapshot_each_between(pmkv_snapshot_t *snapshot, const void *from,
                                            size_t from_size, const void *to, size_t to_size,
                                            pmkv_entry_cb callback, void *argument);
enum pmheap_code pmkv_snapshot_count(pmkv_snapshot_t *snapshot, uint64_t *count);

/* Maps and trees: a value for each key, both of bytes of any length. They are pmlib's
 * PMap<PBytes, PBytes> and PTree<PBytes, PBytes>, and both languages share them. */

/* Found by a hash, in no order. Its head has 64 bytes. */
#define PMHEAP_MAP 1u
/* In the order of the keys' bytes. Its head has 24 bytes. */
#define PMHEAP_TREE 2u

/* A map or a tree: where its head is. A head of zeros is empty. */
struct pmheap_map {
    /* The object with the head. */
    uint64_t object;
    /* Where in the object it begins, a multiple of 8. */
    uint64_t start;
    /* PMHEAP_MAP or PMHEAP_TREE. */
    uint32_t kind;
    /* Has to be 0. */
    uint32_t reserved;
};

/* Bytes, of a bound. */
struct pmheap_bytes {
    const void *at;
    size_t size;
};

/* The map or tree that is the root of this name; made, and empty, if it is missing. */
enum pmheap_code pmheap_map_root(pmheap_t *heap, const char *name, uint32_t kind,
                                 struct pmheap_map *into);

/* Each call on a heap is a transaction of its own, durable when it returns. None of them may be made
 * by a thread that has a transaction of the heap, but for pmheap_map_get, _count and _each. */

/* Has a key's value be this one. */
enum pmheap_code pmheap_map_put(pmheap_t *heap, const struct pmheap_map *map, const void *key,
                                size_t key_size, const void *value, size_t value_size);
/* Copies a key's value into a buffer of `size` bytes. *value_size: bytes of the value, also if there
 * are more than that; nothing is copied then. `value_size` may be NULL. */
enum pmheap_code pmheap_map_get(pmheap_t *heap, const struct pmheap_map *map, const void *key,
                                size_t key_size, void *into, size_t size, size_t *value_size);
/* Takes a key away, which has to be there: PMHEAP_E_NO_KEY. */
enum pmheap_code pmheap_map_remove(pmheap_t *heap, const struct pmheap_map *map, const void *key,
                                   size_t key_size);
enum pmheap_code pmheap_map_count(pmheap_t *heap, const struct pmheap_map *map, uint64_t *count);
/* Takes all entries away, and gives their room back. */
enum pmheap_code pmheap_map_clear(pmheap_t *heap, const struct pmheap_map *map);

/* Shows the entries, of a tree those from a key on up to another one, in order; NULL: no bound, and
 * for PMHEAP_MAP both. `from` is in it, and `to` is not. Others may change it meanwhile: a key that
 * is there throughout comes once, and no key twice. */
enum pmheap_code pmheap_map_each(pmheap_t *heap, const struct pmheap_map *map,
                                 const struct pmheap_bytes *from, const struct pmheap_bytes *to,
                                 pmkv_entry_cb callback, void *argument);

/* The same in a transaction: they happen with the rest, and see its changes. The map is locked to
 * the transaction's end. After an error, but PMHEAP_E_NO_KEY, the transaction can only be aborted. */
enum pmheap_code pmheap_tx_map_put(pmheap_tx_t *tx, const struct pmheap_map *map, const void *key,
                                   size_t key_size, const void *value, size_t value_size);
enum pmheap_code pmheap_tx_map_get(pmheap_tx_t *tx, const struct pmheap_map *map, const void *key,
                                   size_t key_size, void *into, size_t size, size_t *value_size);
enum pmheap_code pmheap_tx_map_remove(pmheap_tx_t *tx, const struct pmheap_map *map,
                                      const void *key, size_t key_size);
enum pmheap_code pmheap_tx_map_count(pmheap_tx_t *tx, const struct pmheap_map *map,
                                     uint64_t *count);
enum pmheap_code pmheap_tx_map_clear(pmheap_tx_t *tx, const struct pmheap_map *map);

/* Vectors and queues of bytes, logs and texts: pmlib's PVec<PBytes>, PQueue<PBytes>, PLog and
 * PString, which both languages share. */

/* Elements of any bytes, by their numbers. Its head has 64 bytes. */
#define PMHEAP_VEC 3u
/* Bytes that are put at one end and taken from the other. Its head has 32 bytes. */
#define PMHEAP_QUEUE 4u
/* Records of any bytes, each with a check. Its head has 32 bytes. */
#define PMHEAP_LOG 5u
/* A text that changes. Its head has 16 bytes. */
#define PMHEAP_STRING 6u

/* One of them: where its head is. A head of zeros is empty. */
struct pmheap_seq {
    /* The object with the head. */
    uint64_t object;
    /* Where in the object it begins, a multiple of 8. */
    uint64_t start;
    /* One of the four; a function takes its own kind alone. */
    uint32_t kind;
    /* Has to be 0. */
    uint32_t reserved;
};

/* A callback for the records of a log. It returns as pmkv_entry_cb does. */
typedef int (*pmheap_record_cb)(void *argument, uint64_t position, const void *record,
                                size_t size);

/* The one that is the root of this name; made, and empty, if it is missing. */
enum pmheap_code pmheap_seq_root(pmheap_t *heap, const char *name, uint32_t kind,
                                 struct pmheap_seq *into);

/* Each call on a heap is a transaction of its own, durable when it returns. None of them may be made
 * by a thread that has a transaction of the heap, but for those that copy, count or show. */

/* Adds an element at the end. *index: its number, from 0 on; `index` may be NULL. */
enum pmheap_code pmheap_vec_push(pmheap_t *heap, const struct pmheap_seq *seq, const void *value,
                                 size_t size, uint64_t *index);
/* Copies an element, as pmheap_map_get copies a value. One that is not there: PMHEAP_E_NO_KEY. */
enum pmheap_code pmheap_vec_get(pmheap_t *heap, const struct pmheap_seq *seq, uint64_t index,
                                void *into, size_t size, size_t *value_size);
/* Has an element be of these bytes; it has to be there: PMHEAP_E_NO_KEY. */
enum pmheap_code pmheap_vec_set(pmheap_t *heap, const struct pmheap_seq *seq, uint64_t index,
                                const void *value, size_t size);
/* Takes the last element away and copies it. None: PMHEAP_E_NO_KEY. One that does not fit stays:
 * PMHEAP_E_SHORT, and *value_size says its bytes. */
enum pmheap_code pmheap_vec_pop(pmheap_t *heap, const struct pmheap_seq *seq, void *into,
                                size_t size, size_t *value_size);
enum pmheap_code pmheap_vec_count(pmheap_t *heap, const struct pmheap_seq *seq, uint64_t *count);
/* Takes all elements away, and gives their room back. */
enum pmheap_code pmheap_vec_clear(pmheap_t *heap, const struct pmheap_seq *seq);
/* Puts bytes at the end. */
enum pmheap_code pmheap_queue_push(pmheap_t *heap, const struct pmheap_seq *seq, const void *value,
                                   size_t size);
/* Takes the first bytes away and copies them, as pmheap_vec_pop does. No other call gets them. */
enum pmheap_code pmheap_queue_pop(pmheap_t *heap, const struct pmheap_seq *seq, void *into,
                                  size_t size, size_t *value_size);
/* Copies the first bytes. None: PMHEAP_E_NO_KEY. */
enum pmheap_code pmheap_queue_peek(pmheap_t *heap, const struct pmheap_seq *seq, void *into,
                                   size_t size, size_t *value_size);
enum pmheap_code pmheap_queue_count(pmheap_t *heap, const struct pmheap_seq *seq, uint64_t *count);
/* Takes all bytes away, and gives their room back. */
enum pmheap_code pmheap_queue_clear(pmheap_t *heap, const struct pmheap_seq *seq);
/* Adds a record of up to 1 GiB. *position: where it is, the bytes of all records before it,
 * which no other record ever has; `position` may be NULL. */
enum pmheap_code pmheap_log_append(pmheap_t *heap, const struct pmheap_seq *seq,
                                   const void *record, size_t size, uint64_t *position);
/* Copies the record at a position. None begins there: PMHEAP_E_NO_KEY. */
enum pmheap_code pmheap_log_read(pmheap_t *heap, const struct pmheap_seq *seq, uint64_t position,
                                 void *into, size_t size, size_t *record_size);
/* The positions of the first record and behind the last one; either may be NULL. */
enum pmheap_code pmheap_log_bounds(pmheap_t *heap, const struct pmheap_seq *seq, uint64_t *front,
                                   uint64_t *end);
/* Drops the records before a position, at which one begins, or the log ends. */
enum pmheap_code pmheap_log_trim(pmheap_t *heap, const struct pmheap_seq *seq, uint64_t position);
/* Drops all records, and gives their room back. */
enum pmheap_code pmheap_log_clear(pmheap_t *heap, const struct pmheap_seq *seq);
/* Has the text be this one, of UTF-8. */
enum pmheap_code pmheap_string_set(pmheap_t *heap, const struct pmheap_seq *seq, const void *text,
                                   size_t size);
/* Adds to the text. */
enum pmheap_code pmheap_string_append(pmheap_t *heap, const struct pmheap_seq *seq,
                                      const void *text, size_t size);
/* Copies the text, without a NUL at its end. */
enum pmheap_code pmheap_string_get(pmheap_t *heap, const struct pmheap_seq *seq, void *into,
                                   size_t size, size_t *text_size);
/* Has the text be empty, and gives its room back. */
enum pmheap_code pmheap_string_clear(pmheap_t *heap, const struct pmheap_seq *seq);

/* Shows the records from a position on, or from the first one that is there. Others may add some
 * meanwhile. */
enum pmheap_code pmheap_log_each(pmheap_t *heap, const struct pmheap_seq *seq, uint64_t from,
                                 pmheap_record_cb callback, void *argument);

/* The same in a transaction: they happen with the rest, and see its changes. The container is locked
 * to the transaction's end. After an error, but PMHEAP_E_NO_KEY and PMHEAP_E_SHORT, the transaction
 * can only be aborted. */
enum pmheap_code pmheap_tx_vec_push(pmheap_tx_t *tx, const struct pmheap_seq *seq,
                                    const void *value, size_t size, uint64_t *index);
enum pmheap_code pmheap_tx_vec_get(pmheap_tx_t *tx, const struct pmheap_seq *seq, uint64_t index,
                                   void *into, size_t size, size_t *value_size);
enum pmheap_code pmheap_tx_vec_set(pmheap_tx_t *tx, const struct pmheap_seq *seq, uint64_t index,
                                   const void *value, size_t size);
enum pmheap_code pmheap_tx_vec_pop(pmheap_tx_t *tx, const struct pmheap_seq *seq, void *into,
                                   size_t size, size_t *value_size);
enum pmheap_code pmheap_tx_vec_count(pmheap_tx_t *tx, const struct pmheap_seq *seq,
                                     uint64_t *count);
enum pmheap_code pmheap_tx_vec_clear(pmheap_tx_t *tx, const struct pmheap_seq *seq);
enum pmheap_code pmheap_tx_queue_push(pmheap_tx_t *tx, const struct pmheap_seq *seq,
                                      const void *value, size_t size);
enum pmheap_code pmheap_tx_queue_pop(pmheap_tx_t *tx, const struct pmheap_seq *seq, void *into,
                                     size_t size, size_t *value_size);
enum pmheap_code pmheap_tx_queue_peek(pmheap_tx_t *tx, const struct pmheap_seq *seq, void *into,
                                      size_t size, size_t *value_size);
enum pmheap_code pmheap_tx_queue_count(pmheap_tx_t *tx, const struct pmheap_seq *seq,
                                       uint64_t *count);
enum pmheap_code pmheap_tx_queue_clear(pmheap_tx_t *tx, const struct pmheap_seq *seq);
enum pmheap_code pmheap_tx_log_append(pmheap_tx_t *tx, const struct pmheap_seq *seq,
                                      const void *record, size_t size, uint64_t *position);
enum pmheap_code pmheap_tx_log_read(pmheap_tx_t *tx, const struct pmheap_seq *seq,
                                    uint64_t position, void *into, size_t size,
                                    size_t *record_size);
enum pmheap_code pmheap_tx_log_bounds(pmheap_tx_t *tx, const struct pmheap_seq *seq,
                                      uint64_t *front, uint64_t *end);
enum pmheap_code pmheap_tx_log_trim(pmheap_tx_t *tx, const struct pmheap_seq *seq,
                                    uint64_t position);
enum pmheap_code pmheap_tx_log_clear(pmheap_tx_t *tx, const struct pmheap_seq *seq);
enum pmheap_code pmheap_tx_string_set(pmheap_tx_t *tx, const struct pmheap_seq *seq,
                                      const void *text, size_t size);
enum pmheap_code pmheap_tx_string_append(pmheap_tx_t *tx, const struct pmheap_seq *seq,
                                         const void *text, size_t size);
enum pmheap_code pmheap_tx_string_get(pmheap_tx_t *tx, const struct pmheap_seq *seq, void *into,
                                      size_t size, size_t *text_size);
enum pmheap_code pmheap_tx_string_clear(pmheap_tx_t *tx, const struct pmheap_seq *seq);
/* Has a log that has never had a record keep its last `kept_bytes` bytes at least, and drop what is
 * before them. */
enum pmheap_code pmheap_tx_log_ring(pmheap_tx_t *tx, const struct pmheap_seq *seq,
                                    uint64_t kept_bytes);

#ifdef __cplusplus
}
#endif
#endif
