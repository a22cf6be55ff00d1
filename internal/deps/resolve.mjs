import { register } from "node:module";
register("data:text/javascript," + encodeURIComponent(`
const parentURL = ${JSON.stringify(import.meta.url)};
export async function resolve(specifier, context, next) {
  try {
    return await next(specifier, context);
  } catch (err) {
    if (err?.code !== "ERR_MODULE_NOT_FOUND" || /^[./]|^[a-z]+:/i.test(specifier)) throw err;
    try {
      return await next(specifier, { ...context, parentURL });
    } catch {
      throw err;
    }
  }
}
`));
