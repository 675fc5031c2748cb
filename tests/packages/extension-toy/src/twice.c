#include "twice.h"

int twice(int number) { return 2 * positive(number); }
