/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registry: see registry.h. Written under the worker's lock. After init a change reaches every
 * child that is concerned, or none: it waits for a run boundary, so that no frame names the place,
 * then goes over the control lane.
 */
#include "src/runtime/registry.h"

#include <link.h>
#include <stdio.h>
#include <string.h>

#include "src/base/atomic.h"
#include "src/base/error.h"
#include "src/base/sha256.h"
#include "src/runtime/control.h"
#include "src/runtime/sched.h"

/* ---- Images ------------------------------------------------------------------------------------
 */

static bool read_build_id(const struct dl_phdr_info *const info, const ElfW(Phdr) *const ph,
                          ech_image *const im)
{
    const char *p = (const char *)(info->dlpi_addr + ph->p_vaddr);
    const char *const end = p + ph->p_memsz;
    while (p + sizeof(ElfW(Nhdr)) <= end) {
        const ElfW(Nhdr) *const n = (const ElfW(Nhdr) *)p;
        const char *const name = p + sizeof *n;
        const char *const desc = name + (n->n_namesz + 3) / 4 * 4;
        if (n->n_type == NT_GNU_BUILD_ID && n->n_namesz == 4 && memcmp(name, "GNU", 4) == 0) {
            memcpy(im->build_id, desc, n->n_descsz < 32 ? n->n_descsz : 32);
            return true;
        }
        p = desc + (n->n_descsz + 3) / 4 * 4;
    }
    return false;
}

static int note_image(struct dl_phdr_info *const info, const size_t size, void *const arg)
{
    ech_worker *const w = arg;
    (void)size;
    if (w->n_images == ECH_MAX_IMAGES) return 1;
    ech_image *const im = &w->images[w->n_images];
    memset(im, 0, sizeof *im);
    im->lo = UINT64_MAX;
    bool has_id = false;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *const ph = &info->dlpi_phdr[i];
        if (ph->p_type == PT_NOTE && !has_id) has_id = read_build_id(info, ph, im);
        if (ph->p_type != PT_LOAD) continue;
        const uint64_t lo = info->dlpi_addr + ph->p_vaddr;
        if (lo < im->lo) im->lo = lo;
        if (lo + ph->p_memsz > im->hi) im->hi = lo + ph->p_memsz;
    }
    (void)snprintf(im->name, sizeof im->name, "%s", info->dlpi_name ? info->dlpi_name : "");
    /* An image without a build id is told apart by its name. */
    if (!has_id) memcpy(im->build_id, im->name, sizeof im->build_id);
    if (im->hi > 0) w->n_images++;
    return 0;
}

void ech_registry_note_images(ech_worker *const w)
{
    w->n_images = 0;
    (void)dl_iterate_phdr(note_image, w);
}

static const ech_image *image_of(const ech_worker *const w, const uint64_t fn)
{
    for (uint32_t i = 0; i < w->n_images; i++) {
        if (fn >= w->images[i].lo && fn < w->images[i].hi) return &w->images[i];
    }
    return NULL;
}

/* ---- Descriptors -------------------------------------------------------------------------------
 */

static void hash_text(ech_sha256 *const s, const char *const text)
{
    ech_sha256_update(s, text, strlen(text) + 1); /* the zero ends it: no two lists hash alike */
}

static void hash_number(ech_sha256 *const s, const uint64_t n)
{
    uint8_t b[8];
    for (int i = 0; i < 8; i++)
        b[i] = (uint8_t)(n >> (8 * i));
    ech_sha256_update(s, b, sizeof b);
}

/* What is being registered, before it has a place. */
typedef struct descriptor {
    uint32_t kind;
    const char *program_kind, *name;
    uint64_t fn;
    const void *bytes;
    size_t n_bytes;
    uint8_t digest[32];
} descriptor;

static void hash_descriptor(descriptor *const d, const ech_image *const im)
{
    ech_sha256 s;
    ech_sha256_init(&s);
    hash_text(&s, "echelon callable");
    hash_number(&s, d->kind);
    hash_text(&s, d->name);
    if (d->kind == ECH_CALLABLE_PROGRAM) {
        hash_text(&s, d->program_kind);
        hash_number(&s, d->n_bytes);
        ech_sha256_update(&s, d->bytes, d->n_bytes);
    } else {
        hash_number(&s, ECH_CALLABLE_ABI);
        ech_sha256_update(&s, im->build_id, sizeof im->build_id);
        hash_number(&s, d->fn - im->lo);
    }
    ech_sha256_final(&s, d->digest);
}

/* ---- Who runs what -----------------------------------------------------------------------------
 */

bool ech_registry_runs(const ech_worker *const w, const uint32_t endpoint_kind,
                       const uint32_t callable_kind)
{
    switch (callable_kind) {
    case ECH_CALLABLE_HOST:
        return endpoint_kind == ECH_ENDPOINT_SUB ||
               (endpoint_kind == ECH_ENDPOINT_CHIP && w->chip_ops == NULL);
    case ECH_CALLABLE_PROGRAM:
        return endpoint_kind == ECH_ENDPOINT_CHIP && w->chip_ops != NULL;
    case ECH_CALLABLE_ORCH:
        return endpoint_kind == ECH_ENDPOINT_WORKER;
    default:
        return false;
    }
}

static bool any_child_runs(const ech_worker *const w, const uint32_t kind)
{
    return (w->n_chips > 0 && ech_registry_runs(w, ECH_ENDPOINT_CHIP, kind)) ||
           (w->n_next > w->n_chips && ech_registry_runs(w, ECH_ENDPOINT_WORKER, kind)) ||
           (w->n_subs > 0 && ech_registry_runs(w, ECH_ENDPOINT_SUB, kind));
}

static const char *kind_name(const uint32_t kind)
{
    static const char *const names[] = { "nothing", "host function", "program", "orchestration" };
    return names[kind & 3];
}

ech_status ech_registry_check_runnable(const ech_worker *const w, ech_error *const err)
{
    for (uint32_t i = 0; i < ECH_MAX_CALLABLES; i++) {
        const ech_callable_entry *const e = &w->shared->callables[i];
        if (e->kind == ECH_CALLABLE_NONE || any_child_runs(w, e->kind)) continue;
        return ech_fail(err, ECH_EINVAL,
                        "starting %s: no child can run '%s', which is a %s; add a child or don't "
                        "register it",
                        w->name, e->name, kind_name(e->kind));
    }
    return ECH_OK;
}

/* ---- Places ------------------------------------------------------------------------------------
 */

static uint32_t find_digest(const ech_worker *const w, const uint8_t digest[32])
{
    for (uint32_t i = 0; i < ECH_MAX_CALLABLES; i++) {
        const ech_callable_entry *const e = &w->shared->callables[i];
        if ((e->kind != ECH_CALLABLE_NONE || e->blocked) && memcmp(e->digest, digest, 32) == 0)
            return i;
    }
    return ECH_MAX_CALLABLES;
}

/* The lowest gap between the programs that are there; few, so a scan does. */
static bool find_program_space(const ech_worker *const w, const uint64_t n, uint64_t *const ret)
{
    const uint64_t total = w->shared->programs_bytes;
    uint64_t at = 0;
    bool moved = true;
    while (moved) {
        moved = false;
        for (uint32_t i = 0; i < ECH_MAX_CALLABLES; i++) {
            const ech_callable_entry *const e = &w->shared->callables[i];
            const uint64_t end = (e->bytes_offset + e->n_bytes + 63) / 64 * 64;
            if (e->kind != ECH_CALLABLE_PROGRAM || e->bytes_offset >= at + n || end <= at) continue;
            at = end;
            moved = true;
        }
    }
    *ret = at;
    return n <= total && at <= total - n;
}

static ech_status fill_place(ech_worker *const w, const uint32_t i, const descriptor *const d,
                             ech_error *const err)
{
    ech_callable_entry *const e = &w->shared->callables[i];
    uint64_t offset = 0;
    if (d->kind == ECH_CALLABLE_PROGRAM) {
        if (!find_program_space(w, d->n_bytes, &offset))
            return ech_fail(err, ECH_ELIMIT,
                            "registering '%s': its %zu bytes don't fit into what is left of "
                            "options.program_bytes %llu",
                            d->name, d->n_bytes, (unsigned long long)w->shared->programs_bytes);
        memcpy((char *)(uintptr_t)w->shared->programs_ptr + offset, d->bytes, d->n_bytes);
    }
    e->fn = d->fn;
    e->bytes_offset = offset;
    e->n_bytes = d->n_bytes;
    e->generation++;
    e->refs = 0;
    memcpy(e->digest, d->digest, sizeof e->digest);
    (void)snprintf(e->name, sizeof e->name, "%s", d->name);
    (void)snprintf(e->program_kind, sizeof e->program_kind, "%s",
                   d->program_kind != NULL ? d->program_kind : "");
    ech_store_release(&e->kind, d->kind);
    w->n_callables++;
    return ECH_OK;
}

static void free_place(ech_worker *const w, const uint32_t i)
{
    ech_store_release(&w->shared->callables[i].kind, (uint32_t)ECH_CALLABLE_NONE);
    w->n_callables--;
}

/* ---- Reaching the children ---------------------------------------------------------------------
 */

static bool concerned(const ech_worker *const w, const ech_endpoint *const ep, const uint32_t kind)
{
    return ep->state == ECH_CHILD_READY && ech_registry_runs(w, ep->kind, kind);
}

/* Time for one child to load or forget a callable. */
#define LOAD_TIMEOUT_S 30.0

static ech_status tell(ech_worker *const w, const uint32_t child, const int32_t op,
                       const uint32_t place, ech_error *const err)
{
    return ech_control_send(w, child, op, place, NULL, 0, NULL, 0, NULL, LOAD_TIMEOUT_S, err);
}

/* Undoes a registration that some children have taken; one that can't forget blocks the digest. */
static void clean_children(ech_worker *const w, const uint32_t place, const uint32_t n_told)
{
    ech_callable_entry *const e = &w->shared->callables[place];
    for (uint32_t c = 0; c < n_told; c++) {
        if (concerned(w, &w->endpoints[c], e->kind) &&
            tell(w, c, ECH_OP_UNREGISTER, place, NULL) != ECH_OK)
            e->blocked = 1;
    }
}

static ech_status tell_children(ech_worker *const w, const uint32_t place, ech_error *const err)
{
    const ech_callable_entry *const e = &w->shared->callables[place];
    for (uint32_t c = 0; c < w->n_children; c++) {
        if (!concerned(w, &w->endpoints[c], e->kind)) continue;
        const ech_status rc = tell(w, c, ECH_OP_REGISTER, place, err);
        if (rc == ECH_OK) continue;
        clean_children(w, place, c);
        return ech_error_prefix(err, rc, "registering '%s' with child %u", e->name, c);
    }
    return ECH_OK;
}

/* ---- Registering -------------------------------------------------------------------------------
 */

static ech_status check_late(const ech_worker *const w, const descriptor *const d,
                             ech_error *const err)
{
    if (w->state != ECH_WORKER_NEW && w->state != ECH_WORKER_READY)
        return ech_fail(err, ECH_ESTATE, "registering '%s': the worker is %s", d->name,
                        ech_worker_state_name((ech_worker_state)w->state));
    if (w->state == ECH_WORKER_READY && !any_child_runs(w, d->kind))
        return ech_fail(err, ECH_ENOTFOUND, "registering '%s': no child can run a %s", d->name,
                        kind_name(d->kind));
    return ECH_OK;
}

static ech_status new_place(ech_worker *const w, const descriptor *const d, uint32_t *const ret,
                            ech_error *const err)
{
    for (uint32_t i = 0; i < ECH_MAX_CALLABLES; i++) {
        const ech_callable_entry *const e = &w->shared->callables[i];
        if (e->kind != ECH_CALLABLE_NONE || e->blocked) continue;
        *ret = i;
        return fill_place(w, i, d, err);
    }
    return ech_fail(err, ECH_ELIMIT, "registering '%s': %d callables are registered, the limit",
                    d->name, ECH_MAX_CALLABLES);
}

/* Lock held; it is given up while children are told. */
static ech_status place_callable(ech_worker *const w, const descriptor *const d,
                                 uint32_t *const ret, ech_error *const err)
{
    ECH_TRY(check_late(w, d, err));
    const uint32_t i = find_digest(w, d->digest);
    if (i < ECH_MAX_CALLABLES) {
        *ret = i;
        if (!w->shared->callables[i].blocked) return ECH_OK;
        return ech_fail(err, ECH_EPOISONED,
                        "registering '%s': a child could neither take nor forget it earlier; close "
                        "the worker",
                        d->name);
    }
    if (w->state == ECH_WORKER_NEW) return new_place(w, d, ret, err);
    ECH_TRY(ech_sched_boundary_enter(w, err));
    ech_status rc = new_place(w, d, ret, err);
    if (rc == ECH_OK) {
        rc = tell_children(w, *ret, err);
        if (rc != ECH_OK) free_place(w, *ret);
    }
    ech_sched_boundary_leave(w);
    return rc;
}

static ech_status give_ticket(ech_worker *const w, const uint32_t place, ech_callable *const ret,
                              ech_error *const err)
{
    ech_callable_entry *const e = &w->shared->callables[place];
    for (uint32_t i = 0; i < ECH_MAX_TICKETS; i++) {
        if (w->tickets[place][i] != 0) continue;
        w->tickets[place][i] = ++w->last_ticket << 8 | place;
        e->refs++;
        memcpy(ret->digest, e->digest, sizeof ret->digest);
        ret->ticket = w->tickets[place][i];
        return ECH_OK;
    }
    return ech_fail(err, ECH_ELIMIT, "registering '%s' again: %u registrations are the limit",
                    e->name, ECH_MAX_TICKETS);
}

static ech_status register_callable(ech_worker *const w, const descriptor *const d,
                                    ech_callable *const ret, ech_error *const err)
{
    uint32_t place = 0;
    ech_lease_guard guard;
    ECH_TRY(ech_lease_begin(w, "registering a callable", &guard, err));
    pthread_mutex_lock(&w->registry_lock);
    pthread_mutex_lock(&w->lock);
    ech_status rc = place_callable(w, d, &place, err);
    if (rc == ECH_OK) rc = give_ticket(w, place, ret, err);
    pthread_mutex_unlock(&w->lock);
    pthread_mutex_unlock(&w->registry_lock);
    ech_lease_end(w, &guard);
    return rc;
}

static ech_status check_name(const char *const what, const char *const name, const size_t cap,
                             ech_error *const err)
{
    if (name == NULL || *name == '\0' || strlen(name) >= cap)
        return ech_fail(err, ECH_EINVAL, "registering a callable: its %s must have 1 to %zu bytes",
                        what, cap - 1);
    return ECH_OK;
}

static ech_status register_function(ech_worker *const w, const uint32_t kind,
                                    const char *const name, const uint64_t fn,
                                    ech_callable *const ret, ech_error *const err)
{
    descriptor d = { .kind = kind, .name = name, .fn = fn };
    ECH_TRY(check_name("name", name, ECH_NAME_BYTES, err));
    if (fn == 0) return ech_fail(err, ECH_EINVAL, "registering '%s': its function is NULL", name);
    pthread_mutex_lock(&w->lock);
    /* Before init the children will have whatever is loaded by then. */
    if (w->state == ECH_WORKER_NEW) ech_registry_note_images(w);
    const ech_image *const im = image_of(w, fn);
    if (im != NULL) hash_descriptor(&d, im);
    pthread_mutex_unlock(&w->lock);
    if (im == NULL)
        return ech_fail(
            err, ECH_EUNSUPPORTED,
            "registering '%s': its function is in no image that was loaded before init, "
            "so the children don't have it",
            name);
    return register_callable(w, &d, ret, err);
}

ech_status ech_worker_register_host(ech_worker *const w, const char *const name,
                                    const ech_host_fn fn, ech_callable *const ret_callable,
                                    ech_error *const err)
{
    return register_function(w, ECH_CALLABLE_HOST, name, (uint64_t)(uintptr_t)fn, ret_callable,
                             err);
}

ech_status ech_worker_register_orch(ech_worker *const w, const char *const name,
                                    const ech_orch_fn fn, ech_callable *const ret_callable,
                                    ech_error *const err)
{
    return register_function(w, ECH_CALLABLE_ORCH, name, (uint64_t)(uintptr_t)fn, ret_callable,
                             err);
}

ech_status ech_worker_register_program(ech_worker *const w, const char *const kind,
                                       const char *const name, const void *const bytes,
                                       const size_t n_bytes, ech_callable *const ret_callable,
                                       ech_error *const err)
{
    descriptor d = { .kind = ECH_CALLABLE_PROGRAM,
                     .program_kind = kind,
                     .name = name,
                     .bytes = bytes,
                     .n_bytes = n_bytes };
    ECH_TRY(check_name("name", name, ECH_NAME_BYTES, err));
    ECH_TRY(check_name("kind", kind, ECH_KIND_BYTES, err));
    if (bytes == NULL || n_bytes == 0)
        return ech_fail(err, ECH_EINVAL, "registering '%s': the program has no bytes", name);
    hash_descriptor(&d, NULL);
    return register_callable(w, &d, ret_callable, err);
}

/* ---- Handles -----------------------------------------------------------------------------------
 */

static uint64_t *find_ticket(const ech_worker *const w, const ech_callable *const c)
{
    const uint32_t place = c->ticket & 0xff;
    if (c->ticket == 0 || place >= ECH_MAX_CALLABLES) return NULL;
    for (uint32_t i = 0; i < ECH_MAX_TICKETS; i++) {
        if (w->tickets[place][i] == c->ticket) return (uint64_t *)&w->tickets[place][i];
    }
    return NULL;
}

ech_status ech_registry_find(const ech_worker *const w, const ech_callable *const c,
                             uint32_t *const ret_index, ech_error *const err)
{
    const uint32_t place = c->ticket & 0xff;
    if (find_ticket(w, c) == NULL ||
        memcmp(w->shared->callables[place].digest, c->digest, sizeof c->digest) != 0)
        return ech_fail(err, ECH_ESTALE,
                        "using a callable: the handle was unregistered or is forged");
    *ret_index = place;
    return ECH_OK;
}

/* The last registration is gone: at a run boundary, so that no frame names the place any more. */
static ech_status retire(ech_worker *const w, const uint32_t place, ech_error *const err)
{
    if (w->state == ECH_WORKER_READY) {
        ECH_TRY(ech_sched_boundary_enter(w, err));
        clean_children(w, place, w->n_children);
        free_place(w, place);
        ech_sched_boundary_leave(w);
    } else {
        free_place(w, place);
    }
    return ECH_OK;
}

static ech_status unregister(ech_worker *const w, const ech_callable *const c, ech_error *const err)
{
    uint32_t place = 0;
    ECH_TRY(ech_registry_find(w, c, &place, err));
    if (w->shared->callables[place].refs == 1) ECH_TRY(retire(w, place, err));
    w->shared->callables[place].refs--;
    *find_ticket(w, c) = 0;
    return ECH_OK;
}

ech_status ech_worker_unregister(ech_worker *const w, const ech_callable *const callable,
                                 ech_error *const err)
{
    ech_lease_guard guard;
    ECH_TRY(ech_lease_begin(w, "unregistering a callable", &guard, err));
    pthread_mutex_lock(&w->registry_lock);
    pthread_mutex_lock(&w->lock);
    const ech_status rc = unregister(w, callable, err);
    pthread_mutex_unlock(&w->lock);
    pthread_mutex_unlock(&w->registry_lock);
    ech_lease_end(w, &guard);
    return rc;
}
