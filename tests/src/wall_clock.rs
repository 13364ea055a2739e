//! The wall clock of a machine, which a test sets while processes run on it.
//!
//! A small library is put before the C library of a process (`LD_PRELOAD`) and adds to what that says of the time of day; the
//! monotonic clock is left alone, as it is where somebody sets a machine's clock. Guarantees: all processes that were started
//! under it see a change at once. Does not: work where programs do not read the time through the C library, so Linux with
//! glibc or musl as a shared library, and a C compiler, which Rust links with anyway.

#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "what goes wrong here is a failed test"
)]

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::environment;

/// Reads how far the clock is off, eight bytes, from a file that is mapped into memory.
const LIBRARY: &str = r"
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const long long *off;

__attribute__((constructor)) static void begin(void) {
    int file = open(WALL_CLOCK, O_RDONLY | O_CLOEXEC);
    void *map = mmap(0, sizeof *off, PROT_READ, MAP_SHARED, file, 0);
    if (map != MAP_FAILED) off = map;
    close(file);
}

int clock_gettime(clockid_t id, struct timespec *t) {
    int failed = syscall(SYS_clock_gettime, id, t) != 0;
    if (!failed && off && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) t->tv_sec += *off;
    return failed ? -1 : 0;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
    struct timespec now;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
    t->tv_sec = now.tv_sec;
    t->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *t) {
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
    if (t) *t = now.tv_sec;
    return now.tv_sec;
}
";

/// A wall clock that is right until it is set.
pub struct WallClock {
    folder: PathBuf,
}

impl WallClock {
    /// Makes one.
    #[must_use]
    pub fn make() -> Self {
        let clock = Self {
            folder: environment::scratch("clock"),
        };
        fs::create_dir(&clock.folder).unwrap();
        clock.set(0);
        let source = clock.folder.join("clock.c");
        fs::write(&source, LIBRARY).unwrap();
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(clock.library())
            .arg(format!("-DWALL_CLOCK=\"{}\"", clock.file().display()))
            .arg(source)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success(), "{said}");
        clock
    }

    /// From now on the clock is so many seconds ahead of the true time.
    pub fn set(&self, ahead: i64) {
        // In place: processes have mapped this very file.
        let file = fs::File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(self.file());
        std::io::Write::write_all(&mut file.unwrap(), &ahead.to_ne_bytes()).unwrap();
    }

    /// Name and value of the variable that puts a process under it.
    #[must_use]
    pub fn variable(&self) -> (&'static str, OsString) {
        ("LD_PRELOAD", self.library().into())
    }

    fn library(&self) -> PathBuf {
        self.folder.join("clock.so")
    }

    fn file(&self) -> PathBuf {
        self.folder.join("ahead")
    }
}

impl Drop for WallClock {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}
