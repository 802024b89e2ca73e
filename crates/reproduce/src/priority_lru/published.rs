//! What the paper prints: tables I and II, milliseconds, by class (high, medium, low) and in total.

/// Customers of the tables.
pub(super) const CUSTOMERS: [&str; 4] = ["customer 1", "customer 2", "customer 3", "customer 4"];
/// Rows of each customer.
pub(super) const GROUPS: [&str; 4] = ["high", "medium", "low", "total"];

/// Table I, column LRU: QoS-aware back end, LRU.
pub(super) const LRU_MS: [[f64; 4]; 4] = [
    [2.36, 6.35, 2.76, 4.06],
    [2.59, 6.65, 6.77, 5.08],
    [1.75, 41.31, 38.5, 35.08],
    [3.09, 11.1, 10.04, 9.59],
];
/// Table I, column Priority LRU, and table II, column QoS Opt. Sys.
pub(super) const PRIORITY_MS: [[f64; 4]; 4] = [
    [1.38, 3.26, 2.04, 2.38],
    [2.0, 5.57, 6.35, 4.32],
    [1.6, 41.34, 38.43, 35.04],
    [2.49, 10.95, 10.02, 9.44],
];
/// Table II, column Reg. System: back end without service classes, LRU.
pub(super) const REGULAR_MS: [[f64; 4]; 4] = [
    [2.29, 6.12, 2.56, 3.87],
    [26.22, 6.77, 13.64, 15.71],
    [1.75, 41.34, 38.42, 35.06],
    [4.37, 14.35, 12.22, 12.14],
];
