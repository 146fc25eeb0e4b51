/* SPDX-License-Identifier: Apache-2.0 */
/* The entry reader: any bytes, as they are and with a digest that fits them, so that what lies
 * behind the digest is reached as well. Whatever is accepted encodes to the same bytes again. */
#include <stdlib.h>
#include <string.h>

#include "store/entry.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look(const void *bytes, size_t size)
{
    struct kiln__entry entry;
    struct kiln__text again = {0};
    const char *why;
    if (!kiln__entry_decode(bytes, size, &entry, &why)) {
        if (!why || entry.sections[KILN__ENTRY_PAYLOAD].bytes)
            abort();
        return;
    }
    for (int i = KILN__ENTRY_DEVICE; i <= KILN__ENTRY_KERNEL; i++)
        if (strlen(kiln__entry_text(&entry, i)) >= entry.sections[i].length)
            abort();
    kiln__entry_encode(&entry, &again);
    if (again.failed || again.length != size || memcmp(again.data, bytes, size))
        abort();
    kiln__text_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    look(data, size);
    if (size < 16)
        return 0;
    uint8_t *copy = malloc(size);
    if (!copy)
        return 0;
    memcpy(copy, data, size);
    struct kiln__hash128 hash = kiln__hash128(copy, size - 16);
    for (size_t i = 0; i < 8; i++) {
        copy[size - 16 + i] = (uint8_t)(hash.low >> 8 * i);
        copy[size - 8 + i] = (uint8_t)(hash.high >> 8 * i);
    }
    look(copy, size);
    free(copy);
    return 0;
}
