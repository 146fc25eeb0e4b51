/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  How public functions are marked. */
#ifndef KILN_EXPORT_H
#define KILN_EXPORT_H

#if defined(__GNUC__) || defined(__clang__)
/** A function of the public interface. */
#define KILN_API __attribute__((visibility("default")))
/** The result must be looked at. */
#define KILN_MUST_CHECK __attribute__((warn_unused_result))
#else
#define KILN_API
#define KILN_MUST_CHECK
#endif

#endif
