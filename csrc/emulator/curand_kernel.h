// Stands in for cuRAND's header of this name: the generators Philox4x32-10 and XORWOW,
// whose words are cuRAND's, and uniform, normal and log-normal numbers made of them.
//
// Not modelled: MRG32k3a, MTGP32, Sobol sequences, and other distributions.
#pragma once

#include "cuda_runtime.h"
#include "device/philox.h"
#include "device/random_numbers.h"
#include "device/xorwow.h"

using curandState_t = curandStateXORWOW_t;
using curandState = curandStateXORWOW_t;
