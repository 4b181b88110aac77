// Stands in for C's header of this name: a failed assertion in a kernel fails the
// launch instead of ending the process. There is no include guard, because C has every
// inclusion follow the NDEBUG of its place.
//
// C's own header declares __assert_fail, which some libraries call by name.
#include_next <assert.h>
#undef assert

#ifdef NDEBUG
#define assert(expression) ((void)0)
#else
#include "runtime.h"
#define assert(expression)                                                   \
    ((expression) ? (void)0                                                  \
                  : ::emulator::assertion_failed(                            \
                        #expression, __FILE__, __LINE__, __PRETTY_FUNCTION__ \
                    ))
#endif
