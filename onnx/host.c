/* SPDX-License-Identifier: Apache-2.0 */
/* Constant-folding arrays on the host: allocation, conversion, f16 and bf16 bits. */
#include "onnx/host.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "onnx/types.h"

bool kiln__onnx_count(size_t rank, const size_t *dims, size_t *count)
{
    size_t n = 1;
    bool empty = false;
    for (size_t i = 0; i < rank; i++) {
        empty = empty || dims[i] == 0;
        if (dims[i] && n > PTRDIFF_MAX / sizeof(union kiln__onnx_cell) / dims[i])
            return false;
        n *= dims[i] ? dims[i] : 1;
    }
    *count = empty ? 0 : n;
    return true;
}

struct kiln__onnx_host *kiln__onnx_host_new(struct kiln__onnx_host **list, int type, size_t rank,
                                            const size_t *dims)
{
    size_t count;
    if (!kiln__onnx_count(rank, dims, &count))
        return NULL;
    struct kiln__onnx_host *host = calloc(1, sizeof *host + count * sizeof *host->cells);
    if (!host)
        return NULL;
    host->type = type;
    host->floats = kiln__onnx_type_floats(type);
    host->rank = rank;
    if (rank)
        memcpy(host->dims, dims, rank * sizeof *dims);
    host->count = count;
    host->next = *list;
    *list = host;
    return host;
}

size_t kiln__onnx_host_bytes(const struct kiln__onnx_host *host)
{
    return sizeof *host + host->count * sizeof *host->cells;
}

void kiln__onnx_host_free(struct kiln__onnx_host *list)
{
    while (list) {
        struct kiln__onnx_host *next = list->next;
        free(list);
        list = next;
    }
}

uint16_t kiln__onnx_half(double number)
{
    if (isnan(number))
        return 0x7e00;
    uint16_t sign = signbit(number) ? 0x8000 : 0;
    double size = fabs(number);
    if (size >= 65520)
        return sign | 0x7c00;
    /* Below the smallest normal number steps are as wide as there. */
    int exponent = size < 0x1p-14 ? -14 : ilogb(size);
    double steps = nearbyint(ldexp(size, 10 - exponent));
    if (size < 0x1p-14)
        return sign | (uint16_t)steps;
    return (uint16_t)(sign | (uint16_t)(((exponent + 14) << 10) + (int)steps));
}

double kiln__onnx_from_half(uint16_t bits)
{
    int exponent = bits >> 10 & 31, digits = bits & 1023;
    double size = exponent == 31  ? (digits ? NAN : INFINITY)
                  : exponent == 0 ? ldexp(digits, -24)
                                  : ldexp(digits + 1024, exponent - 25);
    return bits & 0x8000 ? -size : size;
}

static uint16_t bfloat_of(uint32_t bits)
{
    if ((bits & 0x7fffffff) > 0x7f800000) /* NaN */
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

uint16_t kiln__onnx_bfloat(double number)
{
    float narrow = (float)number;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    return bfloat_of(bits);
}

/* As F. Giesen's float_to_half_fast3_rtne does it: below the smallest normal number an addition
 * rounds. */
static uint16_t half_of(uint32_t bits)
{
    uint32_t size = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;
    if (size > 0x7f800000) /* NaN */
        return 0x7e00;
    if (size >= 0x477ff000) /* 65520 */
        return (uint16_t)(sign | 0x7c00);
    if (size >= 0x38800000) /* 2^-14 */
        return (uint16_t)(sign | (size - (112u << 23) + 0xfff + (size >> 13 & 1)) >> 13);
    float number, half = 0.5F;
    memcpy(&number, &size, sizeof number);
    number += half;
    uint32_t sum, base;
    memcpy(&sum, &number, sizeof sum);
    memcpy(&base, &half, sizeof base);
    return (uint16_t)(sign | (sum - base));
}

void kiln__onnx_narrow_floats(const void *floats, kiln_type type, size_t n, uint16_t *narrow)
{
    const char *from = floats;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, from + i * sizeof bits, sizeof bits);
        narrow[i] = type == KILN_BF16 ? bfloat_of(bits) : half_of(bits);
    }
}

static double from_bfloat(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float number;
    memcpy(&number, &wide, sizeof number);
    return number;
}

static double round_float(const struct kiln__onnx_type *type, double number)
{
    switch (type->type) {
    case KILN_F16: return kiln__onnx_from_half(kiln__onnx_half(number));
    case KILN_BF16: return from_bfloat(kiln__onnx_bfloat(number));
    default: return (double)(float)number;
    }
}

union kiln__onnx_cell kiln__onnx_host_round(int type, union kiln__onnx_cell cell)
{
    const struct kiln__onnx_type *known = kiln__onnx_type(type);
    if (kiln__onnx_type_floats(type))
        cell.f = round_float(known, cell.f);
    else if (known->type == KILN_BOOL)
        cell.i = cell.i != 0;
    else if (known->bits < 64) {
        unsigned unused = 64 - known->bits;
        uint64_t shifted = (uint64_t)cell.i << unused;
        cell.i = known->storage == KILN__ONNX_SIGNED ? (int64_t)shifted >> unused
                                                     : (int64_t)(shifted >> unused);
    }
    return cell;
}

bool kiln__onnx_host_uniform(const struct kiln__onnx_host *host, double *number)
{
    if (host->count == 0)
        return false;
    for (size_t i = 1; i < host->count; i++)
        if (host->cells[i].i != host->cells[0].i)
            return false;
    *number = host->floats ? host->cells[0].f : (double)host->cells[0].i;
    return host->floats || (fabs(*number) < 0x1p63 && (int64_t)*number == host->cells[0].i);
}

int64_t kiln__onnx_integer(double number)
{
    if (isnan(number))
        return 0;
    return number >= 0x1p63 ? INT64_MAX : number < -0x1p63 ? INT64_MIN : (int64_t)number;
}

kiln_status kiln__onnx_host_store(const struct kiln__onnx_host *host, kiln_type type, void *bytes)
{
    for (size_t i = 0; i < host->count; i++) {
        double f = host->floats ? host->cells[i].f : (double)host->cells[i].i;
        int64_t n = host->floats ? kiln__onnx_integer(f) : host->cells[i].i;
        switch (type) {
        case KILN_F32: ((float *)bytes)[i] = (float)f; break;
        case KILN_F16: ((uint16_t *)bytes)[i] = kiln__onnx_half(f); break;
        case KILN_BF16: ((uint16_t *)bytes)[i] = kiln__onnx_bfloat(f); break;
        case KILN_I64: ((int64_t *)bytes)[i] = n; break;
        case KILN_I32: ((int32_t *)bytes)[i] = (int32_t)n; break;
        case KILN_I8: ((int8_t *)bytes)[i] = (int8_t)n; break;
        case KILN_U8: ((uint8_t *)bytes)[i] = (uint8_t)n; break;
        case KILN_BOOL: ((uint8_t *)bytes)[i] = n != 0; break;
        default: break; /* no tensor of ONNX's is of blocks */
        }
    }
    return KILN_OK;
}

void kiln__onnx_host_load(struct kiln__onnx_host *host, kiln_type type, const void *bytes)
{
    for (size_t i = 0; i < host->count; i++) {
        double f = 0;
        int64_t n = 0;
        bool floats = false;
        switch (type) {
        case KILN_F32: f = ((const float *)bytes)[i], floats = true; break;
        case KILN_F16: f = kiln__onnx_from_half(((const uint16_t *)bytes)[i]), floats = true; break;
        case KILN_BF16: f = from_bfloat(((const uint16_t *)bytes)[i]), floats = true; break;
        case KILN_I64: n = ((const int64_t *)bytes)[i]; break;
        case KILN_I32: n = ((const int32_t *)bytes)[i]; break;
        case KILN_I8: n = ((const int8_t *)bytes)[i]; break;
        case KILN_U8: n = ((const uint8_t *)bytes)[i]; break;
        case KILN_BOOL: n = ((const uint8_t *)bytes)[i] != 0; break;
        default: break;
        }
        if (host->floats)
            host->cells[i].f = floats ? f : (double)n;
        else
            host->cells[i].i = floats ? kiln__onnx_integer(f) : n;
    }
}
