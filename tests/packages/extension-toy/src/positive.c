#include "twice.h"

int positive(int number) {
  assert(number >= 0);
  return number;
}
