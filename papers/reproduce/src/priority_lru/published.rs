//! Published values: tables I and II, milliseconds, by class (high, medium, low) and in total.

use super::job::Variant;

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
/// Table I, column % Improvement, 0..1.
pub(super) const PRIORITY_GAIN: [[f64; 4]; 4] = [
    [0.4168, 0.4861, 0.2613, 0.4137],
    [0.2271, 0.1628, 0.0616, 0.1499],
    [0.0826, -0.0006, 0.0017, 0.0011],
    [0.1942, 0.0132, 0.0018, 0.0161],
];
/// Table II, column % Improvement, 0..1.
pub(super) const QOS_GAIN: [[f64; 4]; 4] = [
    [0.3983, 0.4664, 0.2043, 0.3854],
    [0.9237, 0.1776, 0.5342, 0.725],
    [0.0854, 0.0001, -0.0002, 0.0005],
    [0.4289, 0.2371, 0.18, 0.2229],
];

/// Response times of single hours of customer 2 in sections IV and V: hour, index of the group, variant, milliseconds.
pub(super) const HOURS: [(u32, usize, Variant, f64); 22] = [
    (11, 0, Variant::QosLru, 12.55),
    (11, 0, Variant::QosPriorityLru, 9.4),
    (13, 0, Variant::Regular, 414.03),
    (13, 0, Variant::QosLru, 14.32),
    (13, 0, Variant::QosPriorityLru, 6.34),
    (12, 0, Variant::Regular, 4.53),
    (12, 0, Variant::QosPriorityLru, 1.4),
    (14, 0, Variant::Regular, 3.7),
    (14, 0, Variant::QosPriorityLru, 0.18),
    (17, 0, Variant::Regular, 2.72),
    (17, 0, Variant::QosLru, 2.77),
    (17, 0, Variant::QosPriorityLru, 1.0),
    (18, 0, Variant::QosLru, 1.58),
    (18, 0, Variant::QosPriorityLru, 0.34),
    (21, 0, Variant::Regular, 2.93),
    (21, 0, Variant::QosPriorityLru, 0.05),
    (13, 1, Variant::QosLru, 15.9),
    (13, 1, Variant::QosPriorityLru, 13.29),
    (22, 1, Variant::QosLru, 18.52),
    (22, 1, Variant::QosPriorityLru, 11.72),
    (10, 2, Variant::QosLru, 20.98),
    (10, 2, Variant::QosPriorityLru, 16.22),
];
