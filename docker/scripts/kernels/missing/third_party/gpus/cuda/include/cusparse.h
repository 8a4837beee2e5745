// What gpu_prim.h takes out of the real one by way of others: its complex numbers. The wheel with the real one has some hundred megabytes.
#pragma once
#include "cuComplex.h"
