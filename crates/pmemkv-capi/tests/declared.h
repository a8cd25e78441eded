/* The functions of pmemkv 1.5 as its manual pages declare them: for machines without libpmemkv.h. */
#ifndef DECLARED_H
#define DECLARED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PMEMKV_STATUS_OK,
    PMEMKV_STATUS_UNKNOWN_ERROR,
    PMEMKV_STATUS_NOT_FOUND,
    PMEMKV_STATUS_NOT_SUPPORTED,
    PMEMKV_STATUS_INVALID_ARGUMENT,
    PMEMKV_STATUS_CONFIG_PARSING_ERROR,
    PMEMKV_STATUS_CONFIG_TYPE_ERROR,
    PMEMKV_STATUS_STOPPED_BY_CB,
    PMEMKV_STATUS_OUT_OF_MEMORY,
    PMEMKV_STATUS_WRONG_ENGINE_NAME
};

typedef struct pmemkv_db pmemkv_db;
typedef struct pmemkv_config pmemkv_config;
typedef struct pmemkv_comparator pmemkv_comparator;
typedef struct pmemkv_tx pmemkv_tx;
typedef struct pmemkv_iterator pmemkv_iterator;
typedef struct {
    pmemkv_iterator *iter;
} pmemkv_write_iterator;
typedef struct {
    uint64_t pool_uuid_lo, off;
} PMEMoid;

typedef int entry_cb(const char *, size_t, const char *, size_t, void *);
typedef void value_cb(const char *, size_t, void *);
typedef int compare_fn(const char *, size_t, const char *, size_t, void *);

pmemkv_comparator *pmemkv_comparator_new(compare_fn *, const char *, void *);
void pmemkv_comparator_delete(pmemkv_comparator *);
pmemkv_config *pmemkv_config_new(void);
void pmemkv_config_delete(pmemkv_config *);
int pmemkv_config_put_data(pmemkv_config *, const char *, const void *, size_t);
int pmemkv_config_put_object(pmemkv_config *, const char *, void *, void (*)(void *));
int pmemkv_config_put_object_cb(pmemkv_config *, const char *, void *, void *(*)(void *),
                                void (*)(void *));
int pmemkv_config_put_uint64(pmemkv_config *, const char *, uint64_t);
int pmemkv_config_put_int64(pmemkv_config *, const char *, int64_t);
int pmemkv_config_put_string(pmemkv_config *, const char *, const char *);
int pmemkv_config_get_data(pmemkv_config *, const char *, const void **, size_t *);
int pmemkv_config_get_object(pmemkv_config *, const char *, void **);
int pmemkv_config_get_uint64(pmemkv_config *, const char *, uint64_t *);
int pmemkv_config_get_int64(pmemkv_config *, const char *, int64_t *);
int pmemkv_config_get_string(pmemkv_config *, const char *, const char **);
int pmemkv_config_put_size(pmemkv_config *, uint64_t);
int pmemkv_config_put_path(pmemkv_config *, const char *);
int pmemkv_config_put_force_create(pmemkv_config *, bool);
int pmemkv_config_put_create_or_error_if_exists(pmemkv_config *, bool);
int pmemkv_config_put_create_if_missing(pmemkv_config *, bool);
int pmemkv_config_put_comparator(pmemkv_config *, pmemkv_comparator *);
int pmemkv_config_put_oid(pmemkv_config *, PMEMoid *);
int pmemkv_open(const char *, pmemkv_config *, pmemkv_db **);
void pmemkv_close(pmemkv_db *);
int pmemkv_count_all(pmemkv_db *, size_t *);
int pmemkv_count_above(pmemkv_db *, const char *, size_t, size_t *);
int pmemkv_count_equal_above(pmemkv_db *, const char *, size_t, size_t *);
int pmemkv_count_equal_below(pmemkv_db *, const char *, size_t, size_t *);
int pmemkv_count_below(pmemkv_db *, const char *, size_t, size_t *);
int pmemkv_count_between(pmemkv_db *, const char *, size_t, const char *, size_t, size_t *);
int pmemkv_get_all(pmemkv_db *, entry_cb *, void *);
int pmemkv_get_above(pmemkv_db *, const char *, size_t, entry_cb *, void *);
int pmemkv_get_equal_above(pmemkv_db *, const char *, size_t, entry_cb *, void *);
int pmemkv_get_equal_below(pmemkv_db *, const char *, size_t, entry_cb *, void *);
int pmemkv_get_below(pmemkv_db *, const char *, size_t, entry_cb *, void *);
int pmemkv_get_between(pmemkv_db *, const char *, size_t, const char *, size_t, entry_cb *, void *);
int pmemkv_exists(pmemkv_db *, const char *, size_t);
int pmemkv_get(pmemkv_db *, const char *, size_t, value_cb *, void *);
int pmemkv_get_copy(pmemkv_db *, const char *, size_t, char *, size_t, size_t *);
int pmemkv_put(pmemkv_db *, const char *, size_t, const char *, size_t);
int pmemkv_remove(pmemkv_db *, const char *, size_t);
int pmemkv_defrag(pmemkv_db *, double, double);
const char *pmemkv_errormsg(void);
int pmemkv_tx_begin(pmemkv_db *, pmemkv_tx **);
int pmemkv_tx_put(pmemkv_tx *, const char *, size_t, const char *, size_t);
int pmemkv_tx_remove(pmemkv_tx *, const char *, size_t);
int pmemkv_tx_commit(pmemkv_tx *);
void pmemkv_tx_abort(pmemkv_tx *);
void pmemkv_tx_end(pmemkv_tx *);
int pmemkv_iterator_new(pmemkv_db *, pmemkv_iterator **);
int pmemkv_write_iterator_new(pmemkv_db *, pmemkv_write_iterator **);
void pmemkv_iterator_delete(pmemkv_iterator *);
void pmemkv_write_iterator_delete(pmemkv_write_iterator *);
int pmemkv_iterator_seek(pmemkv_iterator *, const char *, size_t);
int pmemkv_iterator_seek_lower(pmemkv_iterator *, const char *, size_t);
int pmemkv_iterator_seek_lower_eq(pmemkv_iterator *, const char *, size_t);
int pmemkv_iterator_seek_higher(pmemkv_iterator *, const char *, size_t);
int pmemkv_iterator_seek_higher_eq(pmemkv_iterator *, const char *, size_t);
int pmemkv_iterator_seek_to_first(pmemkv_iterator *);
int pmemkv_iterator_seek_to_last(pmemkv_iterator *);
int pmemkv_iterator_is_next(pmemkv_iterator *);
int pmemkv_iterator_next(pmemkv_iterator *);
int pmemkv_iterator_prev(pmemkv_iterator *);
int pmemkv_iterator_key(pmemkv_iterator *, const char **, size_t *);
int pmemkv_iterator_read_range(pmemkv_iterator *, size_t, size_t, const char **, size_t *);
int pmemkv_write_iterator_write_range(pmemkv_write_iterator *, size_t, size_t, char **, size_t *);
int pmemkv_write_iterator_commit(pmemkv_write_iterator *);
void pmemkv_write_iterator_abort(pmemkv_write_iterator *);

#endif
