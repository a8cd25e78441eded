/* The steps of a worker in C: `model.rs` says what each does. A face defines the calls below.
 *
 *   worker write PATH WORKER KIND FIRST   steps from FIRST on, each number printed when it is done
 *   worker read PATH WORKER KIND KEYS     the keys that are not as they were put
 */
#ifndef STEPS_H
#define STEPS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KEYS = 200, SHARED = 16, EACH = 4, LONGEST = 70000 };
enum found { THERE, MISSING, DAMAGED };

/* Each ends the process if it fails. */
static void face_open(const char *path, int is_tree);
static void face_put(const char *key, const void *value, size_t size);
static void face_delete(const char *key);
static void face_batch(char keys[3][40], const void *value, size_t size);
static void face_count(void);
static enum found face_get(const char *key, void *value, size_t *size);

static void need(int well, const char *what, const char *why)
{
    if (!well) {
        fprintf(stderr, "%s: %s\n", what, why);
        exit(3);
    }
}

static size_t value_of(uint64_t worker, uint64_t nth, unsigned char *into)
{
    uint64_t word = nth << 8 | worker;
    size_t size = 8 + nth * 13 % 600;
    if (nth % 61 == 60)
        size = 5000;
    if (nth % 97 == 96)
        size = LONGEST;
    for (size_t at = 0; at < size; at++)
        into[at] = (unsigned char)(word >> at % 8 * 8);
    return size;
}

static void look(const char *key, uint64_t worker)
{
    static unsigned char value[LONGEST], whole[LONGEST];
    size_t size = sizeof value;
    enum found found = face_get(key, value, &size);
    if (found == MISSING)
        return;
    need(found == THERE && size >= 8, key, "damaged or too short");
    uint64_t word;
    memcpy(&word, value, 8);
    need(worker == UINT64_MAX || (word & 255) == worker, key, "another's value");
    need(size == value_of(word & 255, word >> 8, whole) && !memcmp(value, whole, size), key,
         "torn");
}

static void step(uint64_t worker, uint64_t nth)
{
    static unsigned char value[LONGEST];
    char key[40], keys[3][40];
    size_t size = value_of(worker, nth, value);
    switch (nth % 6) {
    case 0:
    case 1:
        snprintf(key, sizeof key, "w%d k%d", (int)worker, (int)(nth * 7 % KEYS));
        face_put(key, value, size);
        break;
    case 2:
        snprintf(key, sizeof key, "w%d k%d", (int)worker, (int)(nth * 7 % KEYS));
        face_delete(key);
        break;
    case 3:
        snprintf(key, sizeof key, "s%d", (int)(nth / 6 % SHARED));
        face_put(key, value, size);
        break;
    case 4:
        for (int part = 0; part < 3; part++)
            snprintf(keys[part], sizeof keys[part], "w%d b%d", (int)worker, part);
        face_batch(keys, value, size);
        break;
    default:
        face_count();
    }
}

int main(int count, char **words)
{
    char text[40];
    need(count == 6, "worker", "five words");
    int is_tree = !strcmp(words[4], "tree");
    uint64_t worker = strtoull(words[3], NULL, 10), number = strtoull(words[5], NULL, 10);
    face_open(words[2], is_tree);
    if (!strcmp(words[1], "read")) {
        static unsigned char value[LONGEST], whole[LONGEST];
        for (uint64_t nth = 0; nth < number; nth++) {
            size_t size = sizeof value;
            snprintf(text, sizeof text, "d%d", (int)nth);
            enum found found = face_get(text, value, &size);
            if (found != THERE)
                printf("%s %d\n", found == MISSING ? "missing" : "damaged", (int)nth);
            else
                need(size == value_of(worker, nth, whole) && !memcmp(value, whole, size), text,
                     "wrong");
        }
        puts("end");
        return 0;
    }
    for (uint64_t nth = number;; nth++) {
        step(worker, nth);
        int size = snprintf(text, sizeof text, "%llu\n", (unsigned long long)nth);
        need(write(1, text, (size_t)size) == size, "stdout", "closed");
        if (nth % 4 == 0) {
            uint64_t other = worker / EACH * EACH + (worker + 1 + nth / 4 % 3) % EACH;
            snprintf(text, sizeof text, "w%d k%d", (int)other, (int)(nth * 3 % KEYS));
            look(text, other);
            snprintf(text, sizeof text, "s%d", (int)(nth / 4 % SHARED));
            look(text, UINT64_MAX);
        }
    }
}

#endif
