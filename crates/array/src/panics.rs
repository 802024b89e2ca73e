//! The store of the map panics where pages that it believes are damaged. Here that becomes an error.

use std::cell::Cell;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use redb::Database;

use crate::ArrayError;

thread_local! {
    /// Panics of this thread become errors: nothing is printed of them.
    static CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// Runs what reads or changes a store. A panic of the store is an error of this copy of the map.
///
/// # Errors
/// [`ArrayError::Damaged`] after a panic, else those of `run`.
pub(crate) fn contained<T>(
    place: &str,
    run: impl FnOnce() -> Result<T, ArrayError>,
) -> Result<T, ArrayError> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !CONTAINED.get() {
                before(info);
            }
        }));
    });
    let outer = CONTAINED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(run));
    CONTAINED.set(outer);
    result.unwrap_or_else(|_| {
        Err(ArrayError::Damaged {
            place: place.into(),
            why: "one of its pages cannot be read".into(),
        })
    })
}

/// A store, which writes as it is closed.
#[derive(Debug)]
pub(crate) struct Store(Option<Database>);

impl Store {
    pub(crate) fn new(db: Database) -> Self {
        Self(Some(db))
    }
}

impl Deref for Store {
    type Target = Database;

    fn deref(&self) -> &Database {
        self.0.as_ref().expect("it is open until it is dropped")
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let db = self.0.take();
        // A map that cannot be closed is recovered, or refused, as it is opened next.
        let _ = contained("the map", || {
            drop(db);
            Ok(())
        });
    }
}
