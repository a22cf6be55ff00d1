#!/usr/bin/env python3
# /// tool
# description: Take what a schema of the 2020-12 dialect lets through.
# mcp:
#   input_schema:
#     $schema: https://json-schema.org/draft/2020-12/schema
#     type: object
#     $defs:
#       address:
#         $anchor: addressDef
#         type: object
#         properties: {street: {type: string}, city: {type: string}}
#     properties:
#       name: {type: string}
#       address: {$ref: "#/$defs/address"}
#       contactMethod: {type: string, enum: [phone, email]}
#       phone: {type: string}
#       email: {type: string}
#     allOf:
#       - anyOf: [{required: [phone]}, {required: [email]}]
#     if: {properties: {contactMethod: {const: phone}}, required: [contactMethod]}
#     then: {required: [phone]}
#     else: {required: [email]}
#     additionalProperties: false
# ///
import sys

sys.stdout.write(sys.stdin.read())
