/* SPDX-License-Identifier: Apache-2.0 */
/* Get and put of text entries of the kernel cache under a device's key. */
#include "programs/device_note.h"

#include <string.h>

#include "programs/program_state.h"
#include "programs/store_entry.h"

/* No program has such options. */
static bool make_key(const struct kiln__programs *programs, const char *subject,
                     struct kiln__key *key)
{
    return kiln__key_make(&programs->shared_key, "note", subject, key);
}

bool kiln__device_note_get(struct kiln__programs *programs, const char *subject, char *text,
                           size_t size)
{
    struct kiln__key key;
    struct kiln__loaded loaded;
    if (!make_key(programs, subject, &key))
        return false;
    bool found = kiln__store_get(programs->store, &key, &loaded);
    if (found) {
        const struct kiln__span *payload = &loaded.entry.sections[KILN__ENTRY_PAYLOAD];
        size_t length = payload->length < size ? payload->length : size - 1;
        memcpy(text, payload->bytes, length);
        text[length] = 0;
        kiln__store_unload(&loaded);
    }
    kiln__key_free(&key);
    return found;
}

void kiln__device_note_put(struct kiln__programs *programs, const char *subject, const char *text)
{
    struct kiln__key key;
    const struct kiln__span payload = {text, strlen(text)};
    if (!make_key(programs, subject, &key))
        return;
    kiln__store_entry_bytes(programs->store, &programs->device.info, &key, subject, &payload);
    kiln__key_free(&key);
}
