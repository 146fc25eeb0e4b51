/* SPDX-License-Identifier: Apache-2.0 */
/* Values of templates as JSON, which tojson writes. */
#ifndef KILN_LM_JINJA_JSON_H
#define KILN_LM_JINJA_JSON_H

#include "lm/jinja_parts.h"

/* As Python's json.dumps() with ensure_ascii off; `indent` -1 is none. */
struct kiln__jinja_text kiln__jinja_json(struct kiln__jinja *j, struct kiln__jinja_value value,
                                         int indent);

#endif
