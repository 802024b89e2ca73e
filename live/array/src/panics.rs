//! Conversion of panics of the map's store into errors: it panics on damaged pages that it trusts.

use std::cell::Cell;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use redb::Database;

use crate::ArrayError;

thread_local! {
    /// True while a panic of this thread becomes an error. Its message is not printed then.
    static CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// Runs an operation on a store. A panic of the store counts as damage of this copy of the map.
///
/// # Errors
/// [`ArrayError::Damaged`] after a panic; otherwise the errors of `run`.
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
    result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let place = place.into();
        let why = format!(
            "one of its pages cannot be read ({})",
            text.unwrap_or("panic")
        );
        Err(ArrayError::Damaged { place, why })
    })
}

/// A store that contains panics when it is closed, as closing writes to the file.
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
        self.0
            .as_ref()
            .expect("the store is open until it is dropped")
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let db = self.0.take();
        // A map that cannot be closed is recovered or refused when it is next opened.
        let _ = contained("the map", || {
            drop(db);
            Ok(())
        });
    }
}
