const char *birth_time(void) { return __DATE__ " " __TIME__ " " __TIMESTAMP__; }
