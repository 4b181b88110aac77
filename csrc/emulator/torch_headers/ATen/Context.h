// Stands in for torch's header of this name, which the header of each function includes,
// and needs nothing of. It takes longer to compile than all the rest, so a file gets it
// only where it may name what is in it.
#ifndef OWN_WITHOUT_CONTEXT
#include_next <ATen/Context.h>
#endif
