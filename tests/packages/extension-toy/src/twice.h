#include <assert.h>
int twice(int number);
int positive(int number);
