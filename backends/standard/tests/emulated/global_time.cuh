// A clock that moves by one whenever it is asked.
#pragma once

inline unsigned long long global_time() {
    static unsigned long long time;
    return ++time;
}
