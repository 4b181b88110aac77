// Stands in for CUDA's header of this name.
#pragma once

#include "device/vector_types.h"
