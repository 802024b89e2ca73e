//! Messages about arguments that are not numbers.

use std::error::Error;

/// Replaces the standard library's `reason` for an invalid number in an error message by the expected form. Returns `None`
/// for any other reason.
pub fn with_expected_number(
    message: &str,
    reason: Option<&(dyn Error + 'static)>,
) -> Option<String> {
    let reason = reason?.to_string();
    let expected = match reason.as_str() {
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            "expected a whole number, such as 12"
        }
        "number too large to fit in target type" => "the number is too large",
        "number too small to fit in target type" => "the number is too small",
        "invalid float literal" | "cannot parse float from empty string" => {
            "expected a number, such as 0.5"
        }
        _ => return None,
    };
    Some(message.replacen(&reason, expected, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_number_error_states_the_expected_form() {
        let said = |error: &(dyn Error + 'static)| {
            let message = format!("invalid value 'foo' for '[PLAN]': {error}");
            with_expected_number(&message, Some(error))
        };
        let expected = "invalid value 'foo' for '[PLAN]': expected a whole number, such as 12";
        let error = "foo".parse::<u64>().unwrap_err();
        assert_eq!(said(&error).as_deref(), Some(expected));
        for error in ["", "300", "-1"].map(|text| text.parse::<u8>().unwrap_err()) {
            assert!(said(&error).is_some(), "{error}");
        }
        for error in ["", "x"].map(|text| text.parse::<f64>().unwrap_err()) {
            assert!(said(&error).unwrap().ends_with("such as 0.5"), "{error}");
        }
        assert_eq!(said(&std::fmt::Error), None);
        assert_eq!(with_expected_number("x", None), None);
    }
}
