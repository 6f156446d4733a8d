/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading safetensors headers: one file, or the shards that an index names.
 *
 *     bytes 0..8     N, little endian
 *     bytes 8..8+N   JSON: { "name": { "dtype", "shape", "data_offsets": [begin, end] }, … ,
 *                            "__metadata__": { … } }
 *     bytes 8+N..    the data; offsets count from here
 *
 * The data must be covered by the tensors without hole or overlap, as the format asks: that is how
 * a file that was cut, or grew, anywhere is found.
 */
#ifndef ECH_MODEL_SAFETENSORS_H
#define ECH_MODEL_SAFETENSORS_H

#include "src/model/weights.h"

/* A header of this size describes over 200 000 tensors. */
#define ECH_SAFETENSORS_HEADER_MAX (32u << 20)

/* Adds the tensors of one file. On failure ts holds what was added before and must be given up. */
ech_status ech_safetensors_read(ech_weights *ts, const char *path, ech_error *err);

/*
 * Adds the tensors of every shard that the index names, in the index's folder. Shards that don't
 * exist are named all at once, with what there is instead; so is a tensor that the index puts into
 * a shard that doesn't hold it.
 */
ech_status ech_safetensors_read_index(ech_weights *ts, const char *index_path, ech_error *err);

#endif
