/* SPDX-License-Identifier: Apache-2.0 */
/* What the caller of a product does to a finished element, and to a vector of a row's elements from a
 * column on; by default nothing. The expressions may use the parameters of EPILOGUE_PARAMETERS, which
 * starts with a comma as EPILOGUE_ARGUMENTS does. */
#ifndef EPILOGUE
#define EPILOGUE(value, batch, row, column) (value)
#define EPILOGUE_VECTOR(values, batch, row, column) (values)
#endif
#ifndef EPILOGUE_PARAMETERS
#define EPILOGUE_PARAMETERS
#define EPILOGUE_ARGUMENTS
#endif
