/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal: every mapping that a worker has made and not yet given back. Closing walks it from
 * the newest to the oldest; what can't be released stays, and the next attempt tries only that.
 */
#ifndef ECH_RUNTIME_JOURNAL_H
#define ECH_RUNTIME_JOURNAL_H

#include "echelon/worker.h"

typedef struct ech_journal_entry {
    void *ptr;
    uint64_t bytes;
    char what[ECH_NAME_BYTES];
} ech_journal_entry;

typedef struct ech_journal {
    ech_journal_entry *entries;
    uint32_t n, cap;
} ech_journal;

/* Room for one more entry, so that noting a mapping that was just made can't fail. */
ech_status ech_journal_reserve(ech_journal *j, ech_error *err);
void ech_journal_note(ech_journal *j, void *ptr, uint64_t bytes, const char *what);
/* Releases all that can be; the first failure is returned, the rest is tried all the same. */
ech_status ech_journal_release(ech_journal *j, ech_error *err);

#endif
