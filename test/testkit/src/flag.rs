//! Flags that end the threads of a test.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets a flag when it is dropped. A thread of `std::thread::scope` that waits for the flag then ends even if the test
/// panics. Without it, the panic would wait for that thread forever.
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flag_is_set_when_the_scope_panics() {
        let over = AtomicBool::new(false);
        let ended = std::panic::catch_unwind(|| {
            std::thread::scope(|scope| {
                let _over = SetOnDrop(&over);
                scope.spawn(|| {
                    while !over.load(Ordering::Acquire) {
                        std::thread::yield_now();
                    }
                });
                panic!("on purpose");
            })
        });
        assert!(ended.is_err() && over.load(Ordering::Acquire));
    }
}
