/* SPDX-License-Identifier: Apache-2.0 */
/* The journal: see journal.h. Guarded by whoever creates or closes the worker. */
#include "src/runtime/journal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/error.h"
#include "src/base/os/fault.h"
#include "src/base/os/shm.h"

ech_status ech_journal_reserve(ech_journal *const j, ech_error *const err)
{
    if (j->n < j->cap) return ECH_OK;
    const uint32_t cap = j->cap ? j->cap * 2 : 16;
    ech_journal_entry *const e = ech_mem_alloc(cap, sizeof *e);
    if (e == NULL) return ech_fail(err, ECH_ENOMEM, "noting a mapping: out of memory");
    if (j->n > 0) memcpy(e, j->entries, j->n * sizeof *e);
    free(j->entries);
    j->entries = e;
    j->cap = cap;
    return ECH_OK;
}

void ech_journal_note(ech_journal *const j, void *const ptr, const uint64_t bytes,
                      const char *const what)
{
    ECH_ASSERT(j->n < j->cap);
    ech_journal_entry *const e = &j->entries[j->n++];
    e->ptr = ptr;
    e->bytes = bytes;
    (void)snprintf(e->what, sizeof e->what, "%s", what);
}

ech_status ech_journal_release(ech_journal *const j, ech_error *const err)
{
    ech_status first = ECH_OK;
    uint32_t kept = 0;
    for (uint32_t i = j->n; i-- > 0;) {
        ech_error e = { 0 };
        const ech_status rc = ech_os_unmap(j->entries[i].ptr, j->entries[i].bytes, &e);
        if (rc == ECH_OK) {
            j->entries[i].ptr = NULL;
            continue;
        }
        if (first == ECH_OK)
            first = ech_fail(err, rc, "releasing '%s': %s", j->entries[i].what, e.text);
    }
    for (uint32_t i = 0; i < j->n; i++) {
        if (j->entries[i].ptr != NULL) j->entries[kept++] = j->entries[i];
    }
    j->n = kept;
    if (kept == 0) {
        free(j->entries);
        j->entries = NULL;
        j->cap = 0;
    }
    return first;
}
